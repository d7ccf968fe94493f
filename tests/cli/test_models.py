"""transduce bundles and transduce card: what is installed, and what is known about it."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from transduce.cli.commands import run
from transduce.storage import installed
from transduce.storage.bundle import load_bundle, save_bundle

CARD = "---\nlanguage:\n- en\nlicense: apache-2.0\n---\n\n# My model\n"
SCORES = {"bleu": 98.7, "test": {"corpora": "phrases", "bleu": 97.36}}


@pytest.fixture
def packaged(bundle, tmp_path, monkeypatch):
    """A package with one bundle, whose card a person wrote, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "PACKAGED", tmp_path / "package")
    return save_bundle(
        tmp_path / "package/en-de",
        bundle.recipe,
        bundle.weights(),
        bundle.tokenizer_files,
        SCORES,
        {},
        precision="int8",
        card=CARD,
    )


def test_the_list_says_what_each_model_is(bundle, packaged, capsys):
    shutil.copytree(bundle.path, "runs/mine/best")
    assert run(["bundles"]) == 0
    first, second = capsys.readouterr().out.splitlines()[1:]
    parameters = sum(weight.numel() for weight in bundle.weights().values())
    size = sum(file.stat().st_size for file in packaged.iterdir()) / 1e6
    words = ["en-de", "en-de", f"{parameters / 1e6:.1f}", "M", f"{size:.1f}", "MB"]
    assert first.split() == [*words, "97.4", "phrases", "apache-2.0", "the", "package"]
    assert second.split()[0] == "runs/mine"
    assert second.split()[-3:] == ["-", "-", "runs/mine/best"]

    assert run(["bundles", "--json"]) == 0
    packaged_facts, run_facts = json.loads(capsys.readouterr().out)
    assert packaged_facts["parameters"] == run_facts["parameters"] == parameters
    assert packaged_facts["bytes"] < run_facts["bytes"]
    assert run_facts["bleu"] is None


def test_the_list_names_what_is_damaged_and_goes_on(bundle, packaged, capsys):
    shutil.copytree(bundle.path, "runs/mine/best")
    Path("runs/mine/best/tokenizer.model").write_bytes(b"damaged")
    assert run(["bundles"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()[1:]] == ["en-de"]
    assert printed.err.startswith("transduce: runs/mine cannot be used: runs/mine/best/tokenizer")


def test_an_empty_list_says_what_to_do(packaged, capsys):
    shutil.rmtree(packaged)
    assert run(["bundles"]) == 0
    assert "next: make demo, or transduce train" in capsys.readouterr().out


def test_a_card_that_a_person_wrote_is_part_of_the_bundle_and_stays(bundle, tmp_path, capsys):
    mine = shutil.copytree(bundle.path, tmp_path / "mine")
    (tmp_path / "card.md").write_text(CARD, encoding="utf-8")
    assert run(["card", str(mine)]) == 0
    assert capsys.readouterr().out.startswith("---\nlanguage:")
    assert run(["card", str(mine), "--replace", str(tmp_path / "card.md")]) == 0
    capsys.readouterr()
    assert run(["card", str(mine)]) == 0
    assert capsys.readouterr().out == CARD
    assert load_bundle(mine).own_card == CARD
    assert (mine / "model.safetensors").read_bytes() == (
        bundle.path / "model.safetensors"
    ).read_bytes()
    assert load_bundle(mine).tokenizer_files == bundle.tokenizer_files

    from transduce.distillation.compress import compress

    assert load_bundle(compress(mine, tmp_path / "small")).own_card == CARD
    assert load_bundle(compress(bundle.path, tmp_path / "other")).own_card is None


def test_a_card_needs_a_model_and_text(packaged, tmp_path, capsys):
    Path("card.md").write_bytes(b"\xff\xfe")
    assert run(["card", "--replace", "card.md"]) == 2
    assert "without a model" in capsys.readouterr().err
    assert run(["card", "en-de", "--replace", "card.md"]) == 2
    assert "card.md is not UTF-8 text" in capsys.readouterr().err
    Path("card.md").write_text("\n")
    assert run(["card", "en-de", "--replace", "card.md"]) == 2
    assert "the new model card has no text" in capsys.readouterr().err
    assert load_bundle(packaged).card == CARD


def test_commands_without_a_model_use_that_of_the_package_and_say_so(
    packaged, bundle, capsys, monkeypatch
):
    shutil.copytree(bundle.path, "runs/mine/best")
    Path("runs/mine/best/tokenizer.model").unlink()  # it would not load
    commands = [
        ["translate", "in 98 weeks"],
        ["inspect", "in 98 weeks"],
        ["bench", "decode", "--sentences", "1", "--rounds", "0"],
    ]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for words in commands:
        status = run(words)
        errors = capsys.readouterr().err
        assert "transduce: the model is en-de, which comes with the package\n" in errors
        assert status == (2 if words[0] == "bench" else 0), errors


def test_a_name_of_the_package_is_a_model(packaged, capsys):
    assert run(["translate", "--model", "en-de", "in 98 weeks"]) == 0
    assert run(["inspect", "en-de", "in 98 weeks"]) == 0
    assert run(["card", "en-de"]) == 0
    assert capsys.readouterr().out.endswith(CARD)
