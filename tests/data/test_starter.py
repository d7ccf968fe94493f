"""`transduce new`: a recipe for the user's own text that loads, trains and can be read."""

import gzip
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from transduce import train
from transduce.corpora.phrases import phrases
from transduce.data.starter import write_starter
from transduce.data.starter_recipe import relative_path
from transduce.data.suggestions import Statistics, suggest_preset, suggest_vocabulary
from transduce.errors import ConfigError, DataError
from transduce.presets import PRESETS
from transduce.recipe import check_vocabulary, load_recipe

FAST = [
    "training.steps=2",
    "training.tokens_per_step=200",
    "training.validation_sentences=2",
    "training.average_checkpoints=1",
    "model.N=1",
]


@pytest.fixture(scope="module")
def pairs():
    return phrases("en", "de", pairs=250)["train"]


@pytest.fixture
def text(tmp_path, pairs):
    """Two parallel files of 200 lines, in a folder of their own."""
    folder = tmp_path / "text"
    folder.mkdir()
    return write_text(folder / "mine.en", folder / "mine.de", pairs)


def write_text(source, target, pairs):
    for side, path in enumerate((source, target)):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        path.write_text(lines, encoding="utf-8")
    return source, target


def start(folder, source, target, said=None, **options):
    said = [] if said is None else said
    return write_starter(folder, source, target, say=said.append, **options)


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_the_recipe_trains_wherever_it_is_called_from(text, tmp_path, monkeypatch):
    recipe = start(tmp_path / "en-de", *text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    train(recipe, overrides=FAST, device="cpu")
    # The run has the name of the recipe's folder, as the recipe says.
    assert (elsewhere / "runs/en-de/finished.json").exists()
    assert "--model runs/en-de " in recipe.read_text(encoding="utf-8")


def test_a_file_name_that_no_recipe_can_contain_is_refused(text, tmp_path):
    source = tmp_path / os.fsdecode(b"bad\xff.en")
    with pytest.raises(DataError, match="is not UTF-8, so that a recipe cannot contain it"):
        write_starter(tmp_path / "new", source, tmp_path / "train.de", say=print)
    assert not (tmp_path / "new").exists()


def test_the_recipe_says_what_was_found_in_the_text(text, tmp_path):
    said = []
    path = start(tmp_path / "en-de", *text, said=said)
    recipe = load_recipe(str(path))
    assert (recipe.data.source_language, recipe.data.target_language) == ("en", "de")
    check_vocabulary(recipe)
    assert "200 pairs, en to de, about" in said[0]
    assert said[1].startswith("preset tiny, vocabulary of ")
    expected = PRESETS["tiny"]
    assert (recipe.model, recipe.search) == (
        replace(expected.model, vocab_size=recipe.model.vocab_size),
        expected.search,
    )
    assert recipe.training == expected.training


def test_the_comment_on_precision_names_every_device_that_uses_bf16(text, tmp_path):
    lines = start(tmp_path / "en-de", *text).read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("# precision")]
    assert "on a GPU or CPU that has it" in line


def test_every_setting_in_the_recipe_has_a_comment(text, tmp_path):
    lines = lines_of(start(tmp_path / "en-de", *text))
    for number, line in enumerate(lines):
        assert len(line) <= 100
        if " = " in line and not line.startswith("#"):
            assert " # " in line or lines[number - 1].startswith("#"), line


@pytest.mark.parametrize("preset", ["tiny", "small", "base"])
def test_the_values_in_comments_are_those_of_the_preset(text, tmp_path, preset):
    path = start(tmp_path / "new", *text, preset=preset)
    before = load_recipe(str(path))
    content = path.read_text(encoding="utf-8")
    for name in ("N", "d_model", "p_drop", "steps", "tokens_per_step", "seed", "beam_size"):
        assert f"\n# {name} = " in content
        content = content.replace(f"\n# {name} = ", f"\n{name} = ")
    path.write_text(content, encoding="utf-8")
    assert load_recipe(str(path)) == before


def test_the_last_pairs_are_held_out_and_the_text_is_not_changed(text, tmp_path):
    before = [path.read_bytes() for path in text]
    said = []
    start(tmp_path / "en-de", *text, said=said)
    for path, content in zip(text, before, strict=True):
        assert path.read_bytes() == content
        training = tmp_path / f"en-de/train{path.suffix}"
        validation = tmp_path / f"en-de/valid{path.suffix}"
        assert lines_of(training) + lines_of(validation) == lines_of(path)
        assert len(lines_of(validation)) == 20
    assert "the last 20 pairs are held out for validation" in said[2]


def test_validation_text_of_the_user_is_taken_as_it_is(text, tmp_path, pairs):
    validation = write_text(tmp_path / "v.en", tmp_path / "v.de", pairs[:7])
    data = load_recipe(str(start(tmp_path / "new", *text, validation=validation))).data
    assert data.corpora[0].source == ("../text/mine.en",)
    assert data.validation[0].target == ("../v.de",)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["recipe.toml"]


def test_files_with_the_names_of_new_ones_are_not_overwritten(tmp_path, pairs):
    source, target = write_text(tmp_path / "train.en", tmp_path / "train.de", pairs)
    recipe = load_recipe(str(start(tmp_path, source, target)))
    assert recipe.data.corpora[0].source == ("train-2.en",)
    assert recipe.data.validation[0].target == ("valid-2.de",)
    assert len(lines_of(source)) == 200


def test_a_recipe_is_never_overwritten(text, tmp_path):
    path = start(tmp_path / "new", *text)
    path.write_text("mine")
    with pytest.raises(ConfigError, match=r"recipe\.toml already exists and is not overwritten"):
        start(tmp_path / "new", *text)
    assert path.read_text() == "mine"


def test_a_file_with_both_languages_and_compressed_files_are_read(tmp_path, pairs):
    rows = [json.dumps({"en": source, "de": target}) for source, target in pairs]
    path = tmp_path / "mine.en-de.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    start(tmp_path / "new", path, None)
    assert lines_of(tmp_path / "new/train.en")[:3] == [source for source, _ in pairs[:3]]


def test_languages_are_identified_where_no_name_has_them(tmp_path, pairs):
    sources = [f"This is the sentence of number {number} in our book." for number in range(99)]
    targets = [f"Das ist der Satz mit der Nummer {number} in dem Buch." for number in range(99)]
    both = list(zip(sources, targets, strict=True))
    files = write_text(tmp_path / "a.txt", tmp_path / "b.txt", both)
    data = load_recipe(str(start(tmp_path / "new", *files))).data
    assert (data.source_language, data.target_language) == ("en", "de")
    table = tmp_path / "mine.tsv"
    table.write_text("fr\tit\n" + "\n".join(map("\t".join, both)))
    data = load_recipe(str(start(tmp_path / "table", table, None))).data
    assert (data.source_language, data.target_language) == ("fr", "it")


def test_languages_that_are_given_count(text, tmp_path):
    options = {"source_language": "pt-BR", "target_language": "cs", "preset": "small"}
    recipe = load_recipe(str(start(tmp_path / "new", *text, **options)))
    assert (recipe.data.source_language, recipe.data.target_language) == ("pt-BR", "cs")
    assert recipe.model.norm_order == "pre"


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        ("a\nb\n", "a\n", {}, "mine.de has 1 lines but .*mine.en has 2; they must be parallel"),
        ("", "", {}, "there is no text in .*mine.en and .*mine.de; expected one sentence per line"),
        ("\n\n", "\n\n", {}, "there is no text in .*mine.de; expected one sentence per line"),
        ("a\n", None, {}, r"mine.de does not exist; expected a text file"),
        (
            "a\n" * 5,
            "b\n" * 5,
            {},
            r"too few pairs in .*mine.de to hold out some for validation \(5\)",
        ),
        ("a\n", "b\n", {"preset": "tyni"}, "'tyni' is not the name of a preset"),
        ("a\n", "b\n", {"source_language": "../x"}, "'../x' is not a language code"),
        ("a\n", "b\n", {"target_language": "en"}, "look like 'en'; pass --source-language"),
    ],
)
def test_text_that_cannot_be_used_is_one_line(tmp_path, source, target, options, message):
    files = (tmp_path / "mine.en", tmp_path / "mine.de")
    for path, content in zip(files, (source, target), strict=True):
        if content is not None:
            path.write_text(content)
    with pytest.raises((ConfigError, DataError), match=message) as error:
        start(tmp_path / "new", *files, **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "new").exists()


def test_a_folder_of_translation_memories_says_its_languages(tmp_path, pairs):
    memories = tmp_path / "memories"
    memories.mkdir()
    for name, some in (("a", pairs[:100]), ("b", pairs[100:200])):
        units = ""
        for source, target in some:
            units += f'<tu><tuv xml:lang="de-DE"><seg>{escape(target)}</seg></tuv>'
            units += f'<tuv xml:lang="en-US"><seg>{escape(source)}</seg></tuv></tu>'
        text = f'<tmx><header srclang="en-US"/><body>{units}</body></tmx>'
        (memories / f"{name}.tmx").write_text(text, encoding="utf-8")
    recipe = load_recipe(str(start(tmp_path / "new", memories, None)))
    assert (recipe.data.source_language, recipe.data.target_language) == ("en", "de")
    found = lines_of(tmp_path / "new/train.en") + lines_of(tmp_path / "new/valid.en")
    assert found == [source for source, _ in pairs[:200]]


def test_a_table_with_only_a_header_is_one_line(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("source\ttarget\n")
    with pytest.raises(
        DataError, match=r"there is no text in .*mine\.tsv; expected one sentence per line"
    ):
        start(tmp_path / "new", path, None)


def test_a_lone_surrogate_is_held_out_as_a_replacement_character(tmp_path, pairs):
    """JSON can contain half a character. The rules of cleaning drop what it becomes."""
    path = tmp_path / "mine.jsonl"
    rows = [json.dumps({"en": f"{source} \ud800", "de": target}) for source, target in pairs]
    path.write_text("\n".join(rows))
    start(tmp_path / "new", path, None, source_language="en", target_language="de")
    lines = lines_of(tmp_path / "new/train.en") + lines_of(tmp_path / "new/valid.en")
    assert [line.rstrip("\ufffd ") for line in lines] == [source for source, _ in pairs]
    assert all(line.endswith("\ufffd") for line in lines)


def test_a_name_without_languages_needs_them(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"en": "a", "de": "b"}\n')
    with pytest.raises(
        DataError, match="does not say which languages it is in; pass --source-language"
    ):
        start(tmp_path / "new", path, None)


@pytest.mark.parametrize(
    ("pairs", "preset", "vocab_size"),
    [
        (10_000, "tiny", 4_000),
        (29_000, "small", 8_000),
        (100_000, "small", 16_000),
        (4_500_000, "base", 32_000),
    ],
)
def test_the_size_of_the_text_decides_the_model(pairs, preset, vocab_size):
    assert suggest_preset(pairs) == preset
    assert suggest_vocabulary(Statistics(pairs, 20.0, 15_000, 100)) == vocab_size


def test_the_vocabulary_fits_little_text(tmp_path):
    """Random words, of which there are few: the tokenizer must be able to learn that many pieces."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghij", k=6)) for _ in range(40)]
    sentences = [" ".join(chance.choices(words, k=8)) for _ in range(300)]
    both = [(sentence, sentence.upper()) for sentence in sentences]
    recipe = start(tmp_path / "new", *write_text(tmp_path / "x.en", tmp_path / "x.de", both))
    clean = 'data.clean.off=["copy","wrong-language"]'
    train(recipe, overrides=[*FAST, clean], run=tmp_path / "run", device="cpu")
    assert (tmp_path / "run/finished.json").exists()


def test_paths_that_are_far_away_are_absolute(tmp_path):
    assert relative_path(tmp_path / "a.en", tmp_path / "x/y") == "../../a.en"
    assert relative_path(tmp_path / "a.en", Path("/")) == str(tmp_path / "a.en").removeprefix("/")
    far = tmp_path / "a/b/c/d"
    assert relative_path(tmp_path / "a.en", far) == str((tmp_path / "a.en").resolve())
