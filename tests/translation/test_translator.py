"""From text to text: nothing is lost or reordered, and streams are not read too far ahead."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import transduce
from transduce.config import SearchConfig, TokenizerConfig
from transduce.data.tokenizer import EOS, Tokenizer
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import BundleError, ConfigError, InputError
from transduce.model import Tokens
from transduce.recipe import adjusted
from transduce.search.hypothesis import Hypothesis
from transduce.search.search import Ensemble, search
from transduce.storage.bundle import load_bundle, save_bundle
from transduce.translation import chunks
from transduce.translation.alignment import word_links
from transduce.translation.tag_tree import words
from transduce.translation.translator import Translator


class Echo:
    """An engine that returns every sentence unchanged, which shows what the translator does around it."""

    def __init__(self):
        self.calls = []

    def search(self, sources, config, *, prefixes=(), token_scores=True):
        self.calls.append(len(sources))
        assert all(source[-1] == EOS for source in sources)
        return [
            [Hypothesis(list(source[:-1]), -1.0, -1.0, [-0.1] * len(source))] for source in sources
        ]


@pytest.fixture
def echo(bundle):
    translator = Translator(bundle, engine="torch", device="cpu")
    translator.engine = Echo()
    translator._links = lambda *_: ()
    return translator


@pytest.fixture(scope="module")
def translator(bundle):
    return Translator(bundle, engine="torch", device="cpu")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\n  \n",
        "in 98 weeks",
        "First. Second!\n\nThird?  Fourth.\t\n",
        "...",
        "\u2014 *** \u2014",
        "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 and \U0001f1e9\U0001f1ea",
        "\u05e9\u05dc\u05d5\u05dd. \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644.",
        "We <b>meet</b> {name} at https://example.org/x?a=1 for %1$s.",
        "line separator\u2028and\x00zero, \u2581 too",
        "x" * 5000,
    ],
)
def test_an_engine_that_echoes_gives_the_text_back(echo, text):
    assert echo.translate(text).text == text


@pytest.mark.parametrize("size", [100_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_a_huge_line_is_translated_whole(echo, size):
    sentence = "We need 96.2 meters, " * 60 + "and more. "  # longer than the model takes
    line = sentence * (size // len(sentence) // 2) + "We need 96.2 meters. " * (size // 42)
    assert len(line) > 0.98 * size
    assert echo.translate(line).text == line


def test_a_sentence_that_is_too_long_is_cut_and_the_result_says_so(echo):
    sentence = "one, " * 400 + "two."
    translation = echo.translate(f"Short. {sentence}")
    assert translation.text == f"Short. {sentence}"
    assert len(translation.notices) == 1
    assert "was split into" in translation.notices[0]
    assert echo.translate("Short.").notices == ()
    limit = echo.recipe.data.max_tokens
    assert all(len(echo.tokenizers[0].encode(one.source)) <= limit for one in translation.sentences)


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_a_translation_that_reaches_its_limit_says_so(bundle, engine):
    cut = Translator(bundle, engine=engine, device="cpu", search=SearchConfig(max_length=2))
    (notice,) = cut.translate("Short: in 98 weeks").notices
    assert notice.startswith(
        'the translation of "Short: in 98 weeks" was stopped at 2 tokens and may lack its end'
    )
    (notice,) = cut.translate("in 98 weeks\n" * 30).notices
    assert 'of "in 98 weeks" and 29 more was stopped at 2 tokens' in notice
    whole = Translator(bundle, engine=engine, device="cpu", search=SearchConfig(max_length=60))
    assert whole.translate("in 98 weeks").notices == ()


def test_sentences_for_training_are_translated_alike_without_a_look_at_their_markup(
    bundle, translator, sentences
):
    plain = translator.translate_sentences(sentences[:6])
    assert plain == [found.text for found in translator.translate(sentences[:6])]
    too_long = " ".join(sentences[:60])
    found = translator.translate_sentences([sentences[0], too_long, sentences[1]])
    assert found == [plain[0], None, plain[1]]
    short = Translator(bundle, engine="torch", device="cpu", search=SearchConfig(max_length=1))
    assert short.translate_sentences(sentences[:2]) == [None, None]


def test_several_texts_keep_their_order_and_their_empty_ones(echo):
    texts = ["One day. Two days.", "", "a", "\n", "d"]
    assert [one.text for one in echo.translate(texts)] == texts
    assert echo.translate([]) == []
    assert echo.engine.calls == [4]


def test_equal_sentences_are_searched_once(echo):
    found = echo.translate(["in 98 weeks", "two", "in 98 weeks", "in 98 weeks"])
    assert [each.text for each in found] == ["in 98 weeks", "two", "in 98 weeks", "in 98 weeks"]
    echo.translate("a\u00a0" * 10_000)  # a line without an end, split into equal parts
    assert echo.engine.calls[0] == 2
    assert echo.engine.calls[1] <= 3


def test_equal_sentences_with_different_beginnings_are_both_searched(echo):
    echo.translate("in 98 weeks\nin 98 weeks", prefix="in")
    assert echo.engine.calls == [2]


def test_a_stream_is_read_as_it_is_needed(echo):
    read = []
    lines = (read.append(number) or f"line {number}" for number in range(100_000))
    stream = echo.translate_lines(lines)
    assert [next(stream).text for _ in range(3)] == ["line 0", "line 1", "line 2"]
    assert len(read) == chunks.FIRST
    for _ in range(5000):
        next(stream)
    assert len(read) < 5000 + 2 * chunks.LAST
    assert max(echo.engine.calls) == chunks.LAST


def test_what_is_not_text_is_refused(echo):
    with pytest.raises(InputError, match="text 2 is a int; expected a string"):
        echo.translate(["a", 3])
    for texts in (None, 5, b"in 98 weeks"):
        with pytest.raises(
            InputError, match=rf"texts is of type {type(texts).__name__}; expected several strings"
        ):
            echo.translate(texts)
    for lines in (None, "in 98 weeks"):
        with pytest.raises(
            InputError, match=rf"texts is of type {type(lines).__name__}; expected several strings"
        ):
            next(echo.translate_lines(lines))
    with pytest.raises(InputError, match="unpaired surrogate"):
        echo.translate("a \ud800 b")
    for prefix in (3, b"in", None, ["in"]):
        with pytest.raises(
            InputError,
            match=r"prefix is .*; expected the text with which a translation must begin",
        ):
            echo.translate("in 98 weeks", prefix=prefix)
    with pytest.raises(InputError, match="split is 'words'; expected one of lines, sentences, not"):
        echo.translate("in 98 weeks", split="words")


@pytest.mark.parametrize("place", [b"B", 5, [], [5], {"a": 1}, [b"B"], ["x", 5]])
def test_what_is_no_place_of_a_bundle_is_refused(place):
    with pytest.raises(BundleError, match=r"bundle is .*; expected a folder, or a list of folders"):
        Translator(place)


def test_hypotheses_come_best_first_with_scores_and_confidences(bundle, sentences):
    search = SearchConfig(n_best=3, max_extra=10)
    translator = Translator(bundle, engine="torch", device="cpu", search=search)
    one = translator.translate(f"{sentences[0]}\n{sentences[1]}", confidences=True)
    assert len(one.n_best) == 3
    assert one.n_best[0] == (one.text, one.score)
    scores = [score for _, score in one.n_best]
    assert scores == sorted(scores, reverse=True)
    for sentence in one.sentences:
        assert sentence.tokens[-1].text == "</s>"
        assert all(0 < token.confidence <= 1 for token in sentence.tokens)
        assert (
            min(t.confidence for t in sentence.tokens)
            <= sentence.confidence
            <= max(t.confidence for t in sentence.tokens)
        )


def test_a_model_in_memory_translates_as_its_bundle(bundle, translator, sentences):
    model = translator._model
    mine = Translator.from_model(model, *translator.tokenizers, bundle.recipe)
    assert mine.translate(sentences[:5]) == translator.translate(sentences[:5])


def test_every_word_of_a_translation_may_link_to_words_of_the_source(translator, sentences):
    for sentence in translator.translate(sentences[:10], alignments=True):
        for part in sentence.sentences:
            assert part.alignment is not None
            sources, targets, links = (
                part.alignment.source,
                part.alignment.target,
                part.alignment.links,
            )
            assert (len(sources), len(targets)) == (len(words(part.source)), len(words(part.text)))
            assert "".join(targets) == part.text.replace(" ", "")
            assert all(0 <= a < len(sources) and 0 <= b < len(targets) for a, b in links)


def test_attention_links_the_words_that_it_looks_at(translator, monkeypatch):
    """With attention along the diagonal of tokens, words link in order, though they have several tokens."""
    source = "twelve thousand and\u00e9, \u4e2d\u56fd 7."
    tokenizer = translator.tokenizers[0]
    ids = tokenizer.encode(source)[:-1]
    monkeypatch.setattr(
        "transduce.translation.alignment.token_links", lambda *_: list(range(len(ids) + 1))
    )
    links = word_links(translator._model, translator.tokenizers, source, source, ids)
    assert links == tuple((n, n) for n in range(len(words(source))))


def test_a_token_of_two_words_links_both(translator, monkeypatch):
    tokenizer = Tokenizer.train(
        [f"{n} \u00a3." for n in range(900)], TokenizerConfig(vocab_size=300)
    )
    (both,) = tokenizer.encode("\u00a3.")[:-1]
    monkeypatch.setattr("transduce.translation.alignment.token_links", lambda *_: [0, 0])

    def links(source):
        return word_links(translator._model, (tokenizer, tokenizer), source, "\u00a3.", [both])

    assert links("7") == ((0, 0), (0, 1))
    assert links("\u00a3.") == ((0, 0), (1, 1))


def test_what_is_once_on_both_sides_is_its_own_translation(translator, monkeypatch):
    source, target = "die 12 July 12 %", "die % 7 July 12"
    tokenizer = translator.tokenizers[0]
    ids = tokenizer.encode(target)[:-1]
    monkeypatch.setattr(
        "transduce.translation.alignment.token_links", lambda *_: [0] * (len(ids) + 1)
    )
    links = word_links(translator._model, translator.tokenizers, source, target, ids)
    assert links == (
        (0, 0),
        (0, 2),
        (0, 4),
        (2, 3),
        (4, 1),
    )  # not the number, which occurs twice in the source


def test_an_alignment_names_what_was_kept_from_the_model(translator):
    (part,) = translator.translate("We <b>meet</b> {name}.", alignments=True).sentences
    assert part.alignment.source == ("We", "meet", "{name}", ".")


def test_markup_survives(translator):
    text = 'The <a href="x">train</a> leaves at {time}.'
    translated = translator.translate(text).text
    for kept in ('<a href="x">', "</a>", "{time}"):
        assert translated.count(kept) == 1


def test_a_forced_beginning_begins_the_translation_of_each_text(bundle, sentences):
    for engine in ("torch", "auto"):
        translator = Translator(bundle, engine=engine, device="cpu")
        found = translator.translate(
            [sentences[0], "", "In 98 weeks.\nIn 12 days."], prefix="12 Nein"
        )
        assert [one.text.startswith("12 Nein") for one in found] == [True, False, True]
        assert not any(part.text.startswith("12 Nein") for part in found[2].sentences[1:])
    (streamed,) = translator.translate_lines([sentences[0]], prefix="12 Nein")
    assert streamed.text == found[0].text


def test_learned_positions_are_never_run_over(bundle):
    recipe = replace(
        bundle.recipe, model=replace(bundle.recipe.model, positions="learned", max_positions=30)
    )
    from transduce.model import Transformer

    tokenizer = Translator(bundle, engine="torch", device="cpu").tokenizers[0]
    translator = Translator.from_model(Transformer(recipe.model), tokenizer, tokenizer, recipe)
    assert translator.translate("eleven thousand " * 60).notices


def test_settings_change_where_they_are_given():
    assert adjusted(SearchConfig(), beam_size=2, alpha=None) == SearchConfig(beam_size=2)
    assert adjusted(SearchConfig(beam_size=1), n_best=3) == SearchConfig(beam_size=3, n_best=3)
    assert adjusted(SearchConfig(), ["n_best=6"]) == SearchConfig(beam_size=6, n_best=6)
    sampled = adjusted(SearchConfig(), ["top_k=5", "temperature=0.8"], beam_size=2)
    assert sampled == SearchConfig(beam_size=2, top_k=5, temperature=0.8)
    with pytest.raises(ConfigError, match="expected setting=value, such as temperature"):
        adjusted(SearchConfig(), ["temperature"])
    with pytest.raises(
        ConfigError, match=r"search\.temprature is not a setting; did you mean temperature"
    ):
        adjusted(SearchConfig(), ["temprature=1"])
    with pytest.raises(ConfigError, match=r"raise search\.beam_size"):
        adjusted(SearchConfig(), beam_size=1, n_best=3)
    with pytest.raises(ConfigError, match=r"search\.n_best is 'six'; expected int"):
        adjusted(SearchConfig(), ["n_best=six"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "tensorflow"}, "engine is 'tensorflow'"),
        ({"precision": "int4"}, "precision is 'int4'"),
        ({"engine": "torch", "precision": "int8"}, "which the engine torch does not have"),
        ({"engine": "ctranslate2", "precision": "bf16"}, "has only int8 and float32"),
        ({"engine": "torch", "device": "gpu"}, "device is 'gpu'"),
        (
            {"search": {"beam_size": 2}},
            "search is {'beam_size': 2}; expected settings, such as SearchConfig",
        ),
    ],
)
def test_what_cannot_run_is_refused(bundle, options, message):
    with pytest.raises(ConfigError, match=message):
        Translator(bundle, **options)


def test_a_folder_that_is_no_bundle_is_refused(tmp_path):
    with pytest.raises(BundleError):
        Translator(tmp_path)


def test_importing_the_package_is_light():
    heavy = "{'torch', 'sentencepiece', 'numpy'}"
    code = f"import sys, transduce; assert not {heavy} & {{*sys.modules}}; transduce.Translator"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError):
        transduce.nothing  # noqa: B018


@pytest.fixture(scope="module")
def other(bundle, tmp_path_factory):
    """A bundle of the same vocabulary whose weights are a little off."""
    torch.manual_seed(3)
    weights = {
        name: each + 0.05 * each.std() * torch.randn_like(each)
        for name, each in bundle.weights().items()
    }
    weights["target_embedding.weight"][-1] = 0
    folder = tmp_path_factory.mktemp("other") / "b"
    return load_bundle(save_bundle(folder, bundle.recipe, weights, bundle.tokenizer_files, {}, {}))


def test_an_ensemble_of_one_model_twice_is_that_model(bundle, translator, sentences):
    twice = Translator([bundle, bundle.path], device="cpu")
    for one, alone in zip(
        twice.translate(sentences[:20]), translator.translate(sentences[:20]), strict=True
    ):
        assert one.text == alone.text
        assert one.score == pytest.approx(alone.score, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
@torch.inference_mode()
def test_an_ensemble_searches_the_mean_of_probabilities(bundle, other, sentences, beam_size):
    config = SearchConfig(beam_size=beam_size, max_extra=10)
    together = Translator([bundle, other], device="cpu", search=config)
    models = [load_model(bundle), load_model(other)]
    sources = together.tokenizers[0].encode_batch(sentences[:15])

    def step(tokens, state):
        moved = [m.decode(tokens[:, None], s) for m, s in zip(models, state.states, strict=True)]
        mean = sum(logits[:, 0, :-1].softmax(-1) for logits, _ in moved) / 2
        return F.pad(mean, (0, 1)).log(), Ensemble(tuple(state for _, state in moved))

    expected = []
    for source in sources:
        states = Ensemble(tuple(model.encode(Tokens.padded([source], 499)) for model in models))
        expected += search(step, states, [config.limit(len(source))], 499, config)
    found = together.engine.search(sources, config)
    assert [one[0].ids for one in found] == [one[0].ids for one in expected]
    assert [one[0].score for one in found] == pytest.approx(
        [one[0].score for one in expected], abs=1e-4
    )
    apart = [[one[0].ids for one in TorchEngine(model).search(sources, config)] for model in models]
    assert [one[0].ids for one in found] not in apart  # so that both are heard


def test_an_ensemble_needs_one_vocabulary_and_torch(bundle, other, tmp_path):
    tokenizer = Tokenizer.train(
        [f"quite other words {n}" for n in range(900)], TokenizerConfig(vocab_size=500)
    )
    files = {"tokenizer.model": tokenizer.to_bytes()}
    stranger = save_bundle(tmp_path / "b", bundle.recipe, bundle.weights(), files, {}, {})
    with pytest.raises(BundleError, match="has another vocabulary than"):
        Translator([bundle, stranger])
    with pytest.raises(ConfigError, match="2 models are an ensemble"):
        Translator([bundle, other], engine="ctranslate2")


def test_a_translation_says_what_it_says(bundle):
    translation = Translator(bundle, engine="torch", device="cpu").translate("12 hours")
    assert repr(translation).startswith(f"Translation({translation.text!r}, score=-")
    assert len(repr(translation)) < 200


def test_sentences_are_reported_in_order_as_soon_as_they_are_translated(echo):
    texts = ["First. Second!\n\n... Third", "", "Fourth."]
    reported = []
    sizes = []
    search = echo.engine.search

    def noting_search(sources, config, **options):
        sizes.append((len(sources), len(reported)))
        return search(sources, config, **options)

    echo.engine.search = noting_search
    whole = echo.translate(texts, on_sentence=lambda *event: reported.append(event))
    assert [event[:3] for event in reported] == [(0, 0, 3), (0, 1, 3), (0, 2, 3), (2, 0, 1)]
    assert [event[3] for event in reported] == [s for t in whole for s in t.sentences]
    assert [t.text for t in whole] == [t.text for t in echo.translate(texts)]
    # The first one was reported before the others were searched.
    assert sizes[:3] == [(1, 0), (2, 1), (1, 3)]


def test_sentences_and_the_layout_before_them_are_the_text(echo):
    text = " First. Second!\n\nhttps://example.org/\n Third"
    sentences = echo.translate(text).sentences
    assert "".join(sentence.before + sentence.text for sentence in sentences) == text


def test_n_best_widens_the_beam_of_one_call(translator):
    found = translator.translate("in 98 weeks", n_best=6)
    assert len(found.n_best) == len(found.sentences[0].n_best) == 6
    assert len(translator.translate("in 98 weeks").n_best) == 1
    assert translator.search.n_best == 1
    with pytest.raises(ConfigError, match="n_best"):
        translator.translate("in 98 weeks", n_best=0)


def test_a_sentence_may_extend_over_lines(echo):
    text = "Two lines\nhave one. And\tanother."
    translation = echo.translate(text, split="sentences")
    assert [sentence.text for sentence in translation.sentences] == [
        "Two lines have one.",
        "And another.",
    ]
    assert translation.text == "Two lines have one. And another."
    assert len(echo.translate(text, split="nothing").sentences) == 1
    assert echo.translate(text).text == text


def test_terms_of_a_glossary_come_out_as_it_says(echo):
    glossary = {
        "data": "Daten",
        "data centre": "Rechenzentrum",
        "C++": "C plus plus",
        "Yes! And no!": "Jein",
        " bank ": " Sparkasse\t",
    }
    cases = {
        "The bank of banks.": "The Sparkasse of banks.",
        "We build a data centre.": "We build a Rechenzentrum.",
        "The data, and C++!": "The Daten, and C plus plus!",
        "data": "Daten",
        "They said: Yes! And no! And left.": "They said: Jein And left.",
        "metadata Data": "metadata Data",
        '<a title="data">the data</a>': '<a title="data">the Daten</a>',
        "see https://example.org/data for data": "see https://example.org/data for Daten",
    }
    found = echo.translate([*cases], glossary=glossary)
    assert [translation.text for translation in found] == [*cases.values()]
    shown = echo.translate("We build a data centre.", glossary=glossary, confidences=True)
    assert "Rechenzentrum." in [token.text for token in shown.sentences[0].tokens]
    for wrong in ({"": "x"}, {"a": 5}, {5: "a"}):
        with pytest.raises(InputError, match="the glossary has the entry"):
            echo.translate("a", glossary=wrong)
    echo.translate("a", glossary={"fog": "Nebel", " fog": "Nebel "})
    with pytest.raises(InputError, match="translates 'fog' as 'Nebel' and as 'Dunst'"):
        echo.translate("a", glossary={"fog": "Nebel", "fog ": "Dunst"})
