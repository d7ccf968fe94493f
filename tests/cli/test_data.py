"""`transduce new`: its arguments, and what it prints."""

import sys
import types
from pathlib import Path

import pytest

from transduce.cli.commands import run
from transduce.recipe import load_recipe


@pytest.fixture
def starter(monkeypatch):
    """The calls of `write_starter`, in place of the function."""
    calls = []

    def write_starter(folder, source, target, **options):
        options.pop("say")("written")
        calls.append((folder, source, target, options))
        return folder / "recipe.toml"

    module = types.SimpleNamespace(write_starter=write_starter)
    monkeypatch.setitem(sys.modules, "transduce.data.starter", module)
    return calls


def test_new_writes_a_folder_and_names_the_next_command(starter, capsys):
    files = ["--source", "a.en", "--target", "a.de"]
    assert run(["new", "x", *files]) == 0
    captured = capsys.readouterr()
    assert captured.out == "x/recipe.toml is ready; next: transduce train x/recipe.toml\n"
    assert captured.err == "written\n"
    validation = ["--valid-source", "v.en", "--valid-target", "v.de"]
    languages = ["--source-language", "en", "--target-language", "de"]
    assert run(["new", "y", *files, *validation, *languages, "--preset", "tiny"]) == 0
    nothing = dict.fromkeys(("validation", "source_language", "target_language", "preset"))
    everything = {
        "validation": (Path("v.en"), Path("v.de")),
        "source_language": "en",
        "target_language": "de",
        "preset": "tiny",
    }
    assert starter == [
        (Path("x"), Path("a.en"), Path("a.de"), nothing),
        (Path("y"), Path("a.en"), Path("a.de"), everything),
    ]


def test_a_folder_that_new_writes_has_a_recipe_that_can_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for language in ("en", "de"):
        text = "".join(f"sentence {number} in {language}\n" for number in range(200))
        Path(f"train.{language}").write_text(text)
    assert run(["new", "my folder", "--source", "train.en", "--target", "train.de"]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("next: transduce train 'my folder/recipe.toml'\n")
    assert captured.err != ""
    assert load_recipe("my folder/recipe.toml").data.source_language == "en"


def test_new_needs_both_files_for_validation(starter, capsys):
    for option in ("--valid-source", "--valid-target"):
        assert run(["new", "x", "--source", "a.tsv", option, "b"]) == 2
        assert "give both" in capsys.readouterr().err
    assert starter == []
