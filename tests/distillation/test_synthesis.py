"""Synthetic text: what is written, and what an interruption loses."""

import json
from dataclasses import replace

import pytest

from transduce.config import CorpusConfig, DataConfig, Recipe
from transduce.distillation import parts
from transduce.distillation.synthesis import read_texts, synthesize, unique_sources
from transduce.errors import ConfigError, DataError, InputError
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(bundle):
    return Translator(bundle, engine="torch", device="cpu")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "FIRST", 3)
    monkeypatch.setattr(parts, "LARGEST", 3)


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_both_files_are_parallel_and_hold_what_the_model_translates(
    translator, sentences, tmp_path
):
    made = synthesize(translator, sentences[:8], tmp_path / "new", "text")
    expected = [" ".join(found.text.split()) for found in translator.translate(sentences[:8])]
    assert lines(made.inputs) == sentences[:8]
    assert lines(made.translations) == expected
    assert (made.pairs, made.dropped) == (8, 0)
    assert made.inputs.name == "text.en"
    assert made.translations.name == "text.de"
    assert sorted(path.name for path in made.inputs.parent.iterdir()) == [
        "synthesis.json",
        "text.de",
        "text.en",
    ]


def test_a_tag_begins_every_translation(translator, sentences, tmp_path):
    made = synthesize(translator, sentences[:2], tmp_path / "new", "text", tag="<bt>")
    assert all(line.startswith("<bt> ") for line in lines(made.translations))


@pytest.mark.parametrize("tag", ["a\nb", "a\u2028b", " <bt>", " "])
def test_a_tag_that_would_not_stay_on_its_line_is_refused(translator, sentences, tmp_path, tag):
    with pytest.raises(DataError, match="expected one line without spaces at its ends"):
        synthesize(translator, sentences[:2], tmp_path / "new", "text", tag=tag)
    assert not (tmp_path / "new").exists()


class Counting:
    """A translator that counts its texts and fails after some."""

    def __init__(self, translator, most=10**9):
        self.inner, self.most = translator, most
        self.sizes = []
        self.recipe, self.search, self.bundle, self.engine = (
            translator.recipe,
            translator.search,
            translator.bundle,
            translator.engine,
        )

    def translate_sentences(self, texts):
        if sum(self.sizes) + len(texts) > self.most:
            raise KeyboardInterrupt
        self.sizes.append(len(texts))
        return self.inner.translate_sentences(texts)


def test_an_interrupted_call_continues_after_its_complete_parts(translator, sentences, tmp_path):
    whole = synthesize(translator, sentences[:8], tmp_path / "whole", "text")
    with pytest.raises(KeyboardInterrupt):
        synthesize(Counting(translator, most=6), sentences[:8], tmp_path / "new", "text")
    assert not (tmp_path / "new" / "text.de").exists()

    again = Counting(translator)
    made = synthesize(again, sentences[:8], tmp_path / "new", "text")
    assert again.sizes == [2]
    assert lines(made.translations) == lines(whole.translations)

    finished = Counting(translator)
    assert synthesize(finished, sentences[:8], tmp_path / "new", "text") == made
    assert finished.sizes == []


class Meanwhile(Counting):
    """A translator that calls a function before its first text."""

    def __init__(self, translator, call):
        super().__init__(translator)
        self.call = call

    def translate_sentences(self, texts):
        if not self.sizes:
            self.call()
        return super().translate_sentences(texts)


def test_two_calls_do_not_write_into_one_folder(translator, sentences, tmp_path):
    def second():
        with pytest.raises(DataError, match="another transduce backtranslate is at work in"):
            synthesize(translator, sentences[:9], tmp_path / "new", "text")

    made = synthesize(Meanwhile(translator, second), sentences[:8], tmp_path / "new", "text")
    assert lines(made.inputs) == sentences[:8]
    assert synthesize(translator, sentences[:8], tmp_path / "new", "text") == made
    assert not (tmp_path / "new" / "parts").exists()


def test_a_call_continues_if_it_was_killed_at_its_start(translator, sentences, tmp_path):
    (tmp_path / "new/parts").mkdir(parents=True)
    (tmp_path / "new/parts/lock").touch()
    assert synthesize(translator, sentences[:8], tmp_path / "new", "text").pairs == 8


def test_parts_grow_while_they_are_quick(translator, sentences, tmp_path, monkeypatch):
    """A CPU saves what it has every few seconds; a GPU gets many texts at once."""
    monkeypatch.setattr(parts, "LARGEST", 100)
    quick = Counting(translator)
    synthesize(quick, sentences[:20], tmp_path / "quick", "text")
    assert quick.sizes == [3, 6, 11]
    monkeypatch.setattr(parts, "SECONDS", 0)
    slow = Counting(translator)
    synthesize(slow, sentences[:8], tmp_path / "slow", "text")
    assert slow.sizes == [3, 3, 2]


def test_an_engine_that_rounds_by_the_batch_gets_the_same_parts_at_any_speed(
    bundle, sentences, tmp_path, monkeypatch
):
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(parts, "LARGEST", 100)
    quick = Counting(Translator(bundle, engine="ctranslate2", device="cpu"))
    synthesize(quick, sentences[:10], tmp_path / "quick", "text")
    assert quick.sizes == [3, 3, 3, 1]


def test_a_call_continues_after_parts_of_other_sizes(translator, sentences, tmp_path, monkeypatch):
    whole = synthesize(translator, sentences[:8], tmp_path / "whole", "text")
    with pytest.raises(KeyboardInterrupt):
        synthesize(Counting(translator, most=3), sentences[:8], tmp_path / "new", "text")
    monkeypatch.setattr(parts, "FIRST", 2)
    made = synthesize(translator, sentences[:8], tmp_path / "new", "text")
    assert lines(made.inputs) == lines(whole.inputs)
    assert lines(made.translations) == lines(whole.translations)


def test_several_processes_write_what_one_writes(bundle, sentences, tmp_path):
    translator = Translator(bundle, device="cpu")
    one = synthesize(translator, sentences[:8], tmp_path / "one", "text")
    several = synthesize(
        translator, sentences[:8], tmp_path / "several", "text", processes=2, device="cpu"
    )
    assert several.pairs == one.pairs == 8
    for name in ("text.en", "text.de", "synthesis.json"):
        assert (tmp_path / "several" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert len(list(several.inputs.parent.iterdir())) == 3


def test_a_gap_that_several_processes_left_is_filled_and_no_more(
    translator, sentences, tmp_path, monkeypatch
):
    whole = synthesize(translator, sentences[:11], tmp_path / "whole", "text")
    with pytest.raises(KeyboardInterrupt):
        synthesize(Counting(translator, most=9), sentences[:11], tmp_path / "new", "text")
    (tmp_path / "new/parts/000000003.json").unlink()

    monkeypatch.setattr(parts, "FIRST", 5)
    again = Counting(translator)
    made = synthesize(again, sentences[:11], tmp_path / "new", "text")
    assert again.sizes == [3, 2]
    assert lines(made.inputs) == lines(whole.inputs)
    assert lines(made.translations) == lines(whole.translations)


def test_several_processes_do_not_mix_the_translations_of_two_models(
    bundle, translator, sentences, tmp_path
):
    """A run that goes on training replaces its best model."""
    before = Translator(replace(bundle, fingerprint="before"), engine="torch", device="cpu")
    with pytest.raises(DataError, match="has become another model since the command began; put"):
        synthesize(before, sentences[:8], tmp_path / "new", "text", processes=2, device="cpu")
    assert not list(tmp_path.rglob("*.json"))[1:]  # only the record


def test_a_folder_of_other_text_is_refused(translator, sentences, tmp_path):
    synthesize(translator, sentences[:2], tmp_path / "new", "text")
    with pytest.raises(DataError, match="made with another text; choose another folder"):
        synthesize(translator, sentences[:3], tmp_path / "new", "text")
    (tmp_path / "new" / "synthesis.json").write_text(json.dumps({"model": 1}))
    with pytest.raises(DataError, match="is damaged; remove"):
        synthesize(translator, sentences[:2], tmp_path / "new", "text")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="is not empty"):
        synthesize(translator, sentences[:2], tmp_path / "mine", "text")
    for place in ("letter.txt", "letter.txt/new"):
        with pytest.raises(
            ConfigError, match=r"letter\.txt is not a writable folder; choose a new"
        ):
            synthesize(translator, sentences[:2], tmp_path / "mine" / place, "text")


def test_a_translation_that_is_not_usable_is_dropped_with_its_source(
    translator, sentences, tmp_path
):
    """Blank text is not translated; another text is too long for the model."""
    long = " ".join(sentences[:60])
    made = synthesize(translator, [sentences[0], " ", long, sentences[1]], tmp_path / "new", "text")
    assert lines(made.inputs) == sentences[:2]
    assert (made.pairs, made.dropped) == (2, 2)
    with pytest.raises(DataError, match="none of 1 texts has a usable translation"):
        synthesize(translator, [" "], tmp_path / "blank", "text")
    assert not (tmp_path / "blank" / "text.de").exists()
    with pytest.raises(DataError, match="no text to translate"):
        synthesize(translator, [], tmp_path / "nothing", "text")


def test_each_source_of_a_recipe_is_translated_once(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\none\n\n")
    (tmp_path / "a.de").write_text("eins\nzwei\nein\n\n")
    (tmp_path / "more.en").write_text("three\ntwo\n")
    corpus = CorpusConfig(source="a.en", target="a.de")
    recipe = Recipe(data=DataConfig(corpora=(corpus,)))
    assert unique_sources(recipe, tmp_path, [tmp_path / "more.en"]) == ["one", "two", "three"]
    assert read_texts([tmp_path / "more.en"] * 2, recipe.data) == ["three", "two"]


@pytest.mark.parametrize("name", ["news.de", "news.de.xz"])
def test_text_in_the_target_language_is_refused(tmp_path, name):
    data = DataConfig(source_language="en", target_language="de")
    with pytest.raises(InputError, match=f"{name} is in de by its name, but .* en to de; use a"):
        read_texts([tmp_path / name], data)
