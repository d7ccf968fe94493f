"""Searches of CTranslate2 with a shortlist: only its tokens, unless a search needs others."""

from dataclasses import replace

import pytest

from transduce.config import SearchConfig
from transduce.data.tokenizer import Tokenizer
from transduce.engines.conversion import convert
from transduce.engines.ctranslate2 import CTranslate2Engine
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import BundleError, ExportError
from transduce.storage.bundle import SHORTLIST, load_bundle, save_bundle
from transduce.translation.translator import Translator

pytest.importorskip("ctranslate2")
GREEDY = SearchConfig(beam_size=1, max_extra=20)


def with_shortlist(bundle, folder, pieces):
    files = {
        **bundle.tokenizer_files,
        SHORTLIST: "".join(f"{piece}\n" for piece in pieces).encode(),
    }
    save_bundle(folder, bundle.recipe, bundle.weights(), files, {}, {})
    return load_bundle(folder)


@pytest.fixture(scope="module")
def tokenizer(bundle):
    return Tokenizer(bundle.tokenizer_files["tokenizer.model"])


@pytest.fixture(scope="module")
def sources(tokenizer, sentences):
    return tokenizer.encode_batch(sentences[:30])


@pytest.fixture(scope="module")
def expected(bundle, sources):
    """What torch finds, with all tokens."""
    return TorchEngine(load_model(bundle)).search(sources, GREEDY)


@pytest.fixture(scope="module")
def absent(expected):
    """A token that many translations need."""
    return max({*range(2, 499)}, key=lambda token: sum(token in best.ids for (best,) in expected))


@pytest.fixture(scope="module")
def short(bundle, tokenizer, absent, tmp_path_factory):
    """The bundle with all tokens but one on its shortlist."""
    pieces = [piece for token, piece in enumerate(tokenizer.pieces(range(499))) if token != absent]
    return with_shortlist(bundle, tmp_path_factory.mktemp("short") / "b", pieces)


@pytest.fixture(scope="module")
def engine(short):
    return CTranslate2Engine(short, "cpu", quantization="float32")


def test_a_token_that_is_not_on_it_is_never_written(engine, sources, absent, expected, monkeypatch):
    # torch searches the doubtful sentences again, with all tokens.
    monkeypatch.setattr("transduce.engines.ctranslate2._is_doubtful", lambda *_: False)
    found = engine.search(sources, GREEDY)
    assert sum(absent in best.ids for (best,) in expected) > 3
    assert not any(absent in best.ids for (best,) in found)
    # All others are translated as before.
    limits = [GREEDY.limit(len(source)) for source in sources]
    for (best,), (other,), limit in zip(expected, found, limits, strict=True):
        assert absent in best.ids or best.ids == other.ids[:limit]


def test_a_search_setting_switches_it_off(engine, sources, expected):
    found = engine.search(sources, replace(GREEDY, shortlist=False))
    assert [best.ids for (best,) in found] == [best.ids for (best,) in expected]


def test_several_translations_may_have_any_token(engine, bundle, sources):
    config = SearchConfig(beam_size=2, n_best=2, max_extra=20)
    expected = TorchEngine(load_model(bundle)).search(sources[:10], config)
    found = engine.search(sources[:10], config)
    assert [[one.ids for one in some] for some in found] == [
        [one.ids for one in some] for some in expected
    ]


def test_a_prefix_may_have_any_token(engine, sources, absent):
    prefixes = [[absent, absent]] * 3
    for (best,) in engine.search(sources[:3], GREEDY, prefixes=prefixes):
        assert best.ids[:2] == [absent, absent]


def test_probabilities_of_tokens_are_those_among_all_tokens(engine, bundle, sources):
    model = TorchEngine(load_model(bundle))
    (scored,) = engine.search(sources[:1], GREEDY)[0]
    (again,) = model.search(sources[:1], GREEDY, prefixes=[scored.ids])[0]
    assert again.ids == scored.ids
    assert scored.token_log_probs == pytest.approx(again.token_log_probs, abs=1e-3)


def test_terms_and_markup_are_copied_with_it(short, sentences):
    translator = Translator(short, engine="ctranslate2", device="cpu", precision="float32")
    word = sentences[0].split()[-1]
    text = f"{sentences[0]} https://example.org/Zq"
    found = translator.translate(text, glossary={word: "Zypresse"})
    assert "Zypresse" in found.text
    assert "https://example.org/Zq" in found.text


def test_a_shortlist_of_another_vocabulary_is_refused(bundle, tmp_path):
    wrong = with_shortlist(bundle, tmp_path / "b", ["▁in", "no-such-token"])
    (tmp_path / "out").mkdir()
    with pytest.raises(ExportError, match="'no-such-token', which is no token of the model"):
        convert(wrong, tmp_path / "out", "float32")
    files = {**bundle.tokenizer_files, SHORTLIST: b"\xff\n"}
    save_bundle(tmp_path / "c", bundle.recipe, bundle.weights(), files, {}, {})
    with pytest.raises(BundleError, match=r"shortlist\.txt is not UTF-8"):
        convert(load_bundle(tmp_path / "c"), tmp_path / "out", "float32")
