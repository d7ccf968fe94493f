"""What `inspect` shows is what the model computed and what the search decided."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import transduce
from tests import changes
from transduce.config import SearchConfig
from transduce.data.tokenizer import EOS
from transduce.engines.torch import load_model
from transduce.errors import InputError
from transduce.inspection.inspect import inspect
from transduce.inspection.recording import recording
from transduce.model import attention_weights
from transduce.model.multi_head import MultiHeadAttention
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def shown(translator, text):
    return inspect(translator, text)


def decode(entry):
    levels = np.frombuffer(base64.b64decode(entry["data"]), dtype="<u2")
    return levels.reshape(entry["shape"]) / 65535


# --- Attention --------------------------------------------------------------------------------


@torch.inference_mode()
def maps_of(model, source, target):
    """The attention of every layer, written out from the inputs of each module."""
    maps = {"encoder": [], "decoder": [], "cross": []}

    def note(kind):
        def hook(attention, inputs):
            maps[kind].append(attention.weights(*inputs[:4])[0].numpy())

        return hook

    for layer in model.encoder:
        layer.self_attention.register_forward_pre_hook(note("encoder"))
    for layer in model.decoder:
        layer.self_attention.register_forward_pre_hook(note("decoder"))
        layer.cross_attention.register_forward_pre_hook(note("cross"))
    model(torch.tensor([source]), torch.tensor([[model.config.pad, *target[:-1]]]))
    return {kind: np.stack(layers) for kind, layers in maps.items()}


def test_every_layer_and_head_shows_the_weights_of_equation_1(bundle, shown):
    source = [token.id for token in shown.source.tokens]
    target = [token.id for token in shown.target.tokens]
    expected = maps_of(load_model(bundle), source, target)
    for kind, weights in expected.items():
        np.testing.assert_allclose(shown.attention[kind], weights, atol=2e-5)


def test_weights_are_distributions_and_the_decoder_does_not_look_ahead(shown):
    for weights in shown.attention.values():
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    decoder = shown.attention["decoder"]
    assert decoder[..., np.triu_indices(decoder.shape[-1], k=1)[0], :].max() > 0
    assert not np.triu(decoder, k=1).any()


@pytest.mark.parametrize("change", changes.CHANGES)
@torch.inference_mode()
def test_outputs_are_the_same_to_the_bit_with_and_without_a_recording(change):
    model = changes.build()
    changes.CHANGES[change](model)
    source = torch.tensor([changes.SOURCES[0]])
    target = torch.tensor([[changes.V - 1, *changes.TARGETS[0][:-1]]])
    before = model(source, target)
    with recording(model) as record:
        during = model(source, target)
    assert torch.equal(before, during)
    assert torch.equal(before, model(source, target))
    for attention in changes.each(model, MultiHeadAttention):
        is_own = change == "own method" and attention in [
            layer.self_attention for layer in model.encoder
        ]
        assert ("attend" in attention.__dict__) == is_own
    assert [len(weights) for weights in record.weights.values()] == [1, 2, 2]


@torch.inference_mode()
def test_overridden_attention_shows_what_it_computed():
    """Half of the attention of `Blurred` is paid to all keys alike."""
    model = changes.build()
    changes.CHANGES["own attend"](model)
    seen = []
    attention = model.encoder[0].self_attention
    attention.register_forward_pre_hook(lambda part, inputs: seen.append(part.weights(*inputs[:4])))
    with recording(model) as record:
        model(torch.tensor([changes.SOURCES[0]]), torch.tensor([[changes.V - 1, 4]]))
    length = len(changes.SOURCES[0])
    torch.testing.assert_close(record.weights["encoder"][0], 0.5 * seen[0] + 0.5 / length)
    assert record.notices == []


class Squared(MultiHeadAttention):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) ** 2


@torch.inference_mode()
def test_attention_that_is_no_weighted_sum_is_said_to_be_none():
    model = changes.build()
    model.decoder[1].cross_attention.__class__ = Squared
    with recording(model) as record:
        model(torch.tensor([changes.SOURCES[0]]), torch.tensor([[changes.V - 1, 4]]))
    (notice,) = record.notices
    assert notice.startswith("cross layer 2: Squared.attend is not a weighted sum of the values")


class Bypassing(MultiHeadAttention):
    def forward(self, queries_from, keys_from, mask, rotation=None, cache=None):
        q, k, v = self.queries_keys_values(queries_from, keys_from, rotation)
        return self.join(attention_weights(q, k, mask.allowed) @ v)


def test_attention_that_cannot_be_recorded_is_refused():
    model = changes.build()
    model.encoder[0].self_attention.__class__ = Bypassing
    with pytest.raises(InputError, match="Bypassing computes attention without its method attend"):  # noqa: SIM117
        with torch.inference_mode(), recording(model):
            model(torch.tensor([changes.SOURCES[0]]), torch.tensor([[changes.V - 1, 4]]))
    with pytest.raises(InputError, match=r"model Tanh has no list of layers named encoder"):  # noqa: SIM117
        with recording(torch.nn.Tanh()):
            pass


def test_norms_are_those_of_the_residual_stream(bundle, shown):
    model = load_model(bundle)
    source = torch.tensor([[token.id for token in shown.source.tokens]])
    with torch.inference_mode():
        x = model.embed(
            transduce.Tokens.rows(source), model.target_embedding, model.source_positions
        )
        memory = model.encode(source).memory
    norms = shown.residual_norms["encoder"]
    np.testing.assert_allclose(norms[0], x[0].norm(dim=-1), rtol=1e-4)
    np.testing.assert_allclose(norms[-1], memory[0].norm(dim=-1), rtol=1e-4)
    assert norms.shape == (3, len(shown.source.tokens))
    assert shown.residual_norms["decoder"].shape == (3, len(shown.target.tokens))


# --- Words and the search ---------------------------------------------------------------------


def test_tokens_words_and_the_alignment_are_those_of_the_translator(translator, text, shown):
    expected = translator.translate(text, alignments=True, confidences=True)
    (sentence,) = expected.sentences
    assert shown.translation == expected.text
    assert shown.score == pytest.approx(expected.score)
    assert shown.source.words == sentence.alignment.source
    assert shown.target.words == sentence.alignment.target
    assert shown.alignment == sentence.alignment.links
    assert [token.piece for token in shown.target.tokens] == [t.text for t in sentence.tokens]
    confidences = [token.confidence for token in sentence.tokens]
    assert [t.probability for t in shown.target.tokens] == pytest.approx(confidences, abs=1e-4)
    assert [token.text for token in shown.source.tokens][-1] == "</s>"
    for side in (shown.source, shown.target):
        for token in side.tokens[:-1]:
            assert token.text[0] in side.words[token.word]


@pytest.mark.parametrize(
    "settings",
    [
        SearchConfig(),
        SearchConfig(beam_size=1),
        SearchConfig(beam_size=8, n_best=3, alpha=1.0),
        SearchConfig(beam_size=3, patience=2.0, min_length=4),
        SearchConfig(beam_size=2, no_repeat_ngram=2, max_repeats=1, max_length=9),
    ],
)
def test_the_tree_ends_in_the_translation_that_is_returned(bundle, sentences, settings):
    translator = Translator(bundle, engine="torch", device="cpu", search=settings)
    for text in sentences[:5]:
        shown = inspect(translator, text)
        expected = translator.translate(text)
        assert shown.translation == expected.text
        best = shown.beam.hypotheses[0]
        assert (best.text, best.score) == (shown.translation, shown.score)
        nodes = shown.beam.nodes
        path = [node.id for node in nodes if node.best]
        assert path == [None, *(token.id for token in shown.target.tokens)]
        assert nodes[best.node].best
        texts = [ending.text for ending in shown.beam.hypotheses]
        assert texts[: settings.n_best] == [text for text, _ in expected.n_best]


def test_every_node_has_the_probability_of_its_tokens(bundle, translator, text, shown):
    """Each path of the tree, scored by the model in one go."""
    model = load_model(bundle)
    source = torch.tensor([[token.id for token in shown.source.tokens]])
    nodes = shown.beam.nodes
    for node in nodes[1:]:
        path, at = [], node
        while at.parent is not None:
            path.append(at.id)
            at = nodes[at.parent]
        path.reverse()
        with torch.no_grad():
            logits = model(source, torch.tensor([[model.config.pad, *path[:-1]]]))
        logits[..., -1] = -torch.inf
        log_probs = logits[0].log_softmax(-1)[range(len(path)), path]
        assert float(log_probs.sum()) == pytest.approx(node.log_prob, abs=1e-3)
        assert node.step == len(path)


def test_pruned_hypotheses_are_the_best_of_those_that_were_not_kept_and_say_why(shown):
    size = shown.beam.size
    for step in range(1, max(node.step for node in shown.beam.nodes)):
        at_step = [node for node in shown.beam.nodes if node.step == step]
        kept = [node.log_prob for node in at_step if node.state == "kept"]
        pruned = [node for node in at_step if node.state == "pruned"]
        assert len(kept) == size
        assert 0 < len(pruned) <= size
        for node in pruned:
            assert (node.id == EOS) == ("the end was not among" in node.reason)
            if node.id != EOS:
                assert node.log_prob <= min(kept)
                assert node.reason.startswith(f"below the {size} best: {node.log_prob:.3f}")
    last_step = max(node.step for node in shown.beam.nodes)
    last = [node for node in shown.beam.nodes if node.step == last_step]
    assert {node.state for node in last} == {"ended", "pruned"}
    assert all("the search was over" in node.reason for node in last if node.state == "pruned")


def test_steps_show_the_distribution_from_which_each_token_was_taken(shown):
    for step, token in zip(shown.steps, shown.target.tokens, strict=True):
        probabilities = [candidate.probability for candidate in step.candidates]
        assert probabilities == sorted(probabilities, reverse=True)
        assert len(probabilities) == 10
        assert step.chosen == token.id
        of_chosen = {c.id: c.probability for c in step.candidates}[token.id]
        assert of_chosen == pytest.approx(token.probability, rel=1e-4)
        # Between the entropy of what is shown and that with the rest spread evenly.
        rest = max(1 - sum(probabilities), 1e-9)
        lowest = -sum(p * np.log(p) for p in probabilities) - rest * np.log(rest)
        assert lowest - 1e-4 <= step.entropy <= lowest + rest * np.log(490) + 1e-4


def test_json_has_everything_and_the_same_weights(shown):
    data = json.loads(json.dumps(shown.to_dict()))
    assert data["version"] == 1
    assert data["model"]["encoder_layers"] == data["model"]["decoder_layers"] == 2
    for kind, weights in shown.attention.items():
        np.testing.assert_allclose(decode(data["attention"][kind]), weights, atol=1 / 65535)
    S, T = len(data["source"]["tokens"]), len(data["target"]["tokens"])
    assert data["attention"]["cross"]["shape"] == [2, 4, T, S]
    assert len(data["steps"]) == T
    assert [len(row) for row in data["residual_norms"]["encoder"]] == [S] * 3
    assert len(data["measures"]) == 24
    assert data["beam"]["nodes"][0] == {
        "parent": None, "id": None, "text": "", "step": 0, "log_prob": 0.0, "state": "kept",
        "best": True, "reason": "",
    }  # fmt: skip
    assert all(0 <= node["parent"] < i for i, node in enumerate(data["beam"]["nodes"]) if i)
    assert set(data["target"]["tokens"][0]) == {"id", "text", "piece", "word", "probability"}
    assert set(data["source"]["tokens"][0]) == {"id", "text", "piece", "word"}


# --- Measures ---------------------------------------------------------------------------------


def test_measures_equal_their_definitions(shown):
    words = [token.word for token in shown.source.tokens]
    for measures in shown.measures:
        weights = shown.attention[measures.kind][measures.layer - 1, measures.index - 1]
        rows, columns = weights.shape
        distance = (
            sum(weights[q, k] * abs(q - k) for q in range(rows) for k in range(columns)) / rows
        )
        assert measures.distance == pytest.approx(distance, rel=1e-4)
        entropy = np.mean([-sum(w * np.log(w) for w in row if w > 0) for row in weights])
        assert measures.entropy == pytest.approx(entropy, rel=1e-3)
        if measures.kind == "encoder":
            for name, offset in (("previous", -1), ("same", 0), ("next", 1)):
                shares = []
                for q, word in enumerate(words):
                    near = [
                        k
                        for k, key in enumerate(words)
                        if word is not None and key == word + offset
                    ]
                    if near:
                        shares.append(weights[q, near].sum())
                assert getattr(measures, name) == pytest.approx(np.mean(shares), rel=1e-4)
            assert measures.end == pytest.approx(weights[:, -1].mean(), rel=1e-4)
            marks = [
                k
                for k, word in enumerate(words)
                if word is not None and shown.source.words[word] in ",:"
            ]
            assert measures.punctuation == pytest.approx(weights[:, marks].sum(1).mean(), rel=1e-4)
            assert measures.aligned is None


def test_measures_of_the_decoder_count_from_its_input(shown):
    """A query stands at its input, the token before the one that it produces."""
    inputs = [None, *(token.word for token in shown.target.tokens[:-1])]
    measures = next(each for each in shown.measures if each.head == "decoder.2.1")
    weights = shown.attention["decoder"][1, 0]
    for name, offset in (("previous", -1), ("same", 0)):
        shares = []
        for q, word in enumerate(inputs):
            near = [k for k, key in enumerate(inputs) if word is not None and key == word + offset]
            if near:
                shares.append(weights[q, near].sum())
        assert getattr(measures, name) == pytest.approx(np.mean(shares), rel=1e-4)
    assert measures.next == 0
    assert measures.end == pytest.approx(weights[:, 0].mean(), rel=1e-4)


def test_the_aligned_share_is_the_weight_on_the_words_of_the_alignment(shown):
    measures = next(each for each in shown.measures if each.head == "cross.1.2")
    weights = shown.attention["cross"][0, 1]
    shares = []
    for t, token in enumerate(shown.target.tokens):
        linked = {source for source, target in shown.alignment if target == token.word}
        keys = [k for k, key in enumerate(shown.source.tokens) if key.word in linked]
        if keys:
            shares.append(weights[t, keys].sum())
    assert measures.aligned == measures.same == pytest.approx(np.mean(shares), rel=1e-4)


# --- Engines and bad input --------------------------------------------------------------------


def test_a_translator_with_ctranslate2_shows_the_same_and_loads_torch_once(bundle, text, shown):
    pytest.importorskip("ctranslate2")
    translator = Translator(bundle, engine="ctranslate2", device="cpu")
    first = inspect(translator, text)
    engine = translator.engine.torch_engine
    assert inspect(translator, text).translation == first.translation == shown.translation
    assert translator.engine.torch_engine is engine
    np.testing.assert_allclose(first.attention["cross"], shown.attention["cross"], atol=1e-4)


def test_half_precision_is_inspected_in_float32(bundle, text, shown):
    translator = Translator(bundle, engine="torch", device="cpu", precision="bf16")
    np.testing.assert_allclose(
        inspect(translator, text).attention["encoder"], shown.attention["encoder"], atol=1e-4
    )


def test_a_model_in_memory_is_inspected_as_it_is_now(bundle, translator, text):
    model = load_model(bundle).train()
    own = Translator.from_model(model, *translator.tokenizers, translator.recipe)
    before = inspect(own, text)
    model.decoder[0].cross_attention.w_k.weight.data.zero_()
    after = inspect(own, text)
    assert model.training
    assert not np.allclose(before.attention["cross"][0], after.attention["cross"][0][:, :1].mean())
    np.testing.assert_allclose(after.attention["cross"][0], 1 / len(after.source.tokens), atol=1e-5)


def test_of_an_ensemble_the_first_model_is_shown_and_said_so(bundle, translator, text, shown):
    both = Translator([bundle, bundle], engine="torch", device="cpu")
    found = inspect(both, text)
    assert "the translation is that of all 2 models" in found.notices[0]
    assert found.translation == shown.translation
    np.testing.assert_allclose(found.attention["cross"], shown.attention["cross"], atol=1e-5)


def test_one_sentence_of_a_text_is_shown(translator):
    text = "in 98 weeks. Monday, 3 May 2021."
    first, second = inspect(translator, text), inspect(translator, text, sentence=1)
    assert first.sentences == second.sentences == ("in 98 weeks.", "Monday, 3 May 2021.")
    assert (first.text, second.text) == first.sentences
    assert second.notices == ("the text has 2 sentences; number 2 is shown",)
    with pytest.raises(InputError, match="sentence is 2, but the text has 2; expected 0 to 1"):
        inspect(translator, text, sentence=2)


def test_a_sentence_that_is_too_long_is_shown_in_parts_and_said_so(translator):
    found = inspect(translator, "in 98 weeks, " * 60)
    assert "is longer than the model accepts and was split into" in found.notices[0]
    assert len(found.sentences) > 1


def test_a_translation_that_was_cut_says_so(bundle, text):
    cut = replace(bundle.recipe.search, max_length=3)
    found = inspect(Translator(bundle, engine="torch", device="cpu", search=cut), text)
    assert "stopped at 3 tokens" in found.notices[-1]


def test_a_translator_that_samples_shows_a_beam(bundle, text, shown):
    sampling = replace(bundle.recipe.search, temperature=1.0, n_best=2)
    found = inspect(Translator(bundle, engine="torch", device="cpu", search=sampling), text)
    assert found.translation == shown.translation
    assert "a beam search of size 4 is shown" in found.notices[0]


def test_markup_is_left_out_and_said_so(translator):
    found = inspect(translator, "in <b>98</b> weeks")
    assert found.source.words == ("in", "98", "weeks")
    assert found.notices == ('the model reads "in 98 weeks"',)


@pytest.mark.parametrize("text", ["", " \n ", "...", "<b></b>"])
def test_a_text_without_words_is_refused(translator, text):
    with pytest.raises(InputError, match="the text has nothing to translate"):
        inspect(translator, text)


def test_what_is_not_text_is_refused(translator):
    with pytest.raises(InputError, match="the text is a list; expected a string"):
        inspect(translator, ["in 98 weeks"])


class Foreign:
    def search(self, sources, config, *, prefixes=(), token_scores=True):
        raise AssertionError


def test_an_engine_without_torch_is_refused_unless_there_is_a_bundle(bundle, translator):
    own = Translator.from_model(load_model(bundle), *translator.tokenizers, translator.recipe)
    own.engine = Foreign()
    with pytest.raises(InputError, match="the engine Foreign has no model in torch"):
        inspect(own, "in 98 weeks")


def test_an_imported_opus_model_is_inspected(tmp_path):
    pytest.importorskip("transformers")
    from tests.exporters import opus
    from transduce.exporters.command import import_folder

    folder = opus.folder(tmp_path / "opus-mt-en-de", codes=(">>deu<<", ">>nld<<"))
    import_folder(folder, tmp_path / "bundle")
    translator = Translator(tmp_path / "bundle", engine="torch", device="cpu")
    found = inspect(translator, "in 98 weeks")
    assert found.translation == translator.translate("in 98 weeks").text
    assert found.source.words == ("in", "98", "weeks")
    assert found.attention["encoder"].shape[:2] == (2, 4)
    assert found.attention["cross"].shape[:2] == (1, 4)

    # The code of the target language stands before every sentence.
    second = inspect(translator, ">>deu<< in 98 weeks. Monday", sentence=1)
    assert second.source.tokens[0].text == ">>deu<<"
    assert "the text has 2 sentences; number 2 is shown" in second.notices
    assert not any("markup" in notice for notice in second.notices)
    assert second.source.words[-1] == "Monday"


def test_a_model_with_attention_of_its_own_is_inspected_from_text_to_text(bundle, translator, text):
    model = load_model(bundle)
    for layer in model.encoder:
        layer.self_attention.__class__ = changes.Blurred
    own = Translator.from_model(model, *translator.tokenizers, translator.recipe)
    found = inspect(own, text)
    assert found.translation == own.translate(text).text
    assert found.attention["encoder"].min() >= 0.5 / len(found.source.tokens) - 1e-6
    assert found.notices == ()


def test_an_ensemble_in_half_precision_is_inspected_in_float32(bundle, text, shown):
    both = Translator([bundle, bundle], engine="torch", device="cpu", precision="bf16")
    found = inspect(both, text)
    np.testing.assert_allclose(found.attention["cross"], shown.attention["cross"], atol=0.05)
    assert inspect(both, text).attention["cross"].shape == found.attention["cross"].shape
