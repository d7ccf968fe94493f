"""The recipes that come with the project: they load, and differ from their preset as they say."""

import re
import tomllib
from pathlib import Path

import pytest

from transduce.corpora.catalogue import find
from transduce.errors import ConfigError
from transduce.presets import PRESETS, preset
from transduce.recipe import check_vocabulary, differences, load_recipe

FOLDER = Path(__file__).parent.parent / "recipes"
FILES = sorted(FOLDER.glob("*.toml"))
TEXT = ("data.corpora", "data.validation", "data.test")
FRENCH = {
    "data.target_language": "fr",
    "data.tokenizer.vocab_size": 32_000,
    "model.vocab_size": 32_000,
}
# The preset of each recipe, and the settings in which it differs from it.
EXPECTED = {
    "paper-base-wmt14-en-de": ("base", {}),
    "paper-big-wmt14-en-de": ("big", {}),
    "paper-base-wmt14-en-fr": ("base", FRENCH),
    "paper-big-wmt14-en-fr": ("big", {**FRENCH, "model.p_drop": 0.1}),
    "multi30k-en-de": (
        "small",
        {
            "model.p_drop": 0.3,
            "training.steps": 2_400,
            "training.validate_every": 400,
            "training.save_every": 400,
            "training.average": "best",
            "training.average_checkpoints": 1,
        },
    ),
    "small-data": ("small", {}),
    "domain-adaptation": (
        "base",
        {
            "training.steps": 2_000,
            "training.tokens_per_step": 8_000,
            "training.schedule": "cosine",
            "training.learning_rate": 1e-4,
            "training.warmup_steps": 200,
            "training.validate_every": 200,
            "training.save_every": 200,
            "training.patience": 4,
            "training.average": "best",
            "training.average_checkpoints": 1,
        },
    ),
}


def test_every_recipe_is_expected_and_in_the_readme():
    assert {path.stem for path in FILES} == set(EXPECTED)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([\w-]+)\.toml\)", readme)) == set(EXPECTED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recipe_differs_from_its_preset_as_it_says(path):
    name, expected = EXPECTED[path.stem]
    assert tomllib.loads(path.read_text(encoding="utf-8"))["preset"] == name
    recipe = load_recipe(str(path))
    changes = differences(recipe, preset(name))
    changed = {setting: value for setting, (value, _) in changes.items() if setting not in TEXT}
    assert changed == expected
    check_vocabulary(recipe)
    assert recipe.data.corpora
    assert recipe.data.validation


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recipe_of_a_known_corpus_names_all_of_its_files(path):
    data = load_recipe(str(path)).data
    text = path.read_text(encoding="utf-8")
    for name, folder in re.findall(r"transduce data get (\S+) --out (\S+)", text):
        entry = find(name)
        assert entry.languages == (data.source_language, data.target_language)
        if path.stem == "small-data":  # takes a part of the corpus
            (part,) = (part for part in entry.parts if part.split == "train")
            assert f"{folder}/{part.name}.$side" in text
            continue
        sections = {"train": data.corpora, "valid": data.validation, "test": data.test}
        for split, corpora in sections.items():
            names = [part.name for part in entry.parts if part.split == split]
            assert [corpus.name for corpus in corpora] == names
            for corpus in corpora:
                files = [f"{folder}/{corpus.name}.{language}" for language in entry.languages]
                assert [*corpus.source, *corpus.target] == files
        assert data.tokenizer.vocab_size == entry.vocab_size or "multi30k" in name


def test_presets_in_the_readme_are_those_of_the_recipes():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\]\(([\w-]+)\.toml\) \| [^|]+ \| `(\w+)`", readme)
    assert dict(rows) == {name: expected for name, (expected, _) in EXPECTED.items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_lines_fit_and_the_command_names_the_file(path):
    text = path.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    assert f"transduce train {path.name}" in text


BOX = sorted((FOLDER / "model-in-the-box").glob("*.toml"))


@pytest.mark.parametrize("path", BOX, ids=lambda path: path.stem)
def test_the_recipes_of_the_model_in_the_box_go_together(path):
    recipe = load_recipe(str(path))
    check_vocabulary(recipe)
    assert [corpus.name for corpus in recipe.data.validation] == ["newstest2013"]
    assert [corpus.name for corpus in recipe.data.test] == ["newstest2014"]
    trained_on = {name for corpus in recipe.data.corpora for name in corpus.source + corpus.target}
    assert not any("newstest2013" in name or "newstest2014" in name for name in trained_on)

    # Every command that its first lines show is in the README too.
    readme = (path.parent / "README.md").read_text(encoding="utf-8")
    comment = re.match("(?:#.*\n)+", path.read_text(encoding="utf-8"))[0]
    comment = re.sub(r"\\\n# +", "", comment)  # commands on two lines
    commands = re.findall("transduce .*", comment)
    assert commands
    assert all(f"`{command}`" in readme for command in commands)


def test_a_preset_on_the_command_line_replaces_that_of_the_file(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('preset = "base"\n[training]\nsteps = 7\n')
    recipe = load_recipe(str(path), ["preset=small", "model.N=2"])
    assert (recipe.model.d_ff, recipe.training.steps, recipe.model.N) == (1024, 7, 2)
    assert load_recipe("base", ["preset=tiny"]) == PRESETS["tiny"]
    with pytest.raises(ConfigError, match="'nope' is not the name of a preset"):
        load_recipe(str(path), ["preset=nope"])


@pytest.mark.parametrize(
    ("override", "ours"),
    [
        ("dropout=0.1", "model.p_drop"),
        ("training.lr=1e-3", "training.learning_rate"),
        ("batch_size=64", "training.tokens_per_step"),
        ("training.epochs=3", "training.steps"),
        ("model.layers=6", "model.N"),
        ("heads=8", "model.h"),
        ("early_stopping=true", "training.patience"),
        *(
            (f"{name}=50", "data.max_tokens")
            for name in ("max_len", "max_length", "data.max_length")
        ),
        ("training.max_seq_length=50", "data.max_tokens"),
        ("fp16=true", "training.precision"),
    ],
)
def test_the_names_of_other_libraries_suggest_ours(override, ours):
    with pytest.raises(ConfigError, match=f"is not a setting; here it is called {ours}"):
        load_recipe("base", [override])
