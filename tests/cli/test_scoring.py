"""The command score: one report for models and files of translations."""

import json
import subprocess
import sys

import pytest

from tests import trained
from transduce.cli.commands import run

PAIRS = trained.splits()["test"][:20]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a test set and the translations of two systems."""
    monkeypatch.chdir(tmp_path)
    sources = [source for source, _ in PAIRS]
    references = [target for _, target in PAIRS]
    files = {
        "test.en": sources,
        "test.de": references,
        "good.de": [text[:-1] for text in references],
        "bad.de": sources,
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    return tmp_path


def score(*words):
    return run(["score", *map(str, words)])


def test_a_model_is_scored_and_its_translations_are_written(folder, bundle, capsys):
    words = [bundle.path, "test.en", "test.de", "--engine", "torch", "--device", "cpu"]
    assert score(*words, "--out", "out.de", "--perplexity", "--json", "report.json") == 0
    captured = capsys.readouterr()
    report = json.loads((folder / "report.json").read_text())
    (system,) = report["systems"]
    assert system["name"] == system["model"] == str(bundle.path)
    assert system["perplexity"]["value"] > 1
    assert f"transduce inspect {bundle.path}" in captured.out
    assert "transduce: wrote out.de\n" in captured.err

    # The file has the same scores as the model that wrote it.
    assert score("--hypothesis", "out.de", "test.en", "test.de", "--json") == 0
    (again,) = json.loads(capsys.readouterr().out)["systems"]
    assert again["scores"] == system["scores"]
    assert "perplexity" not in again


def test_several_files_are_compared_with_the_first(folder, capsys):
    words = ["--hypothesis", "good.de", "--hypothesis", "bad.de"]
    files = ["--source", "test.en", "--reference", "test.de"]
    outputs = ["--markdown", "report.md", "--html", "report.html", "--svg", "chart.svg"]
    assert score(*words, *files, *outputs, "--resamples", "50") == 0
    text = capsys.readouterr().out
    assert "bad.de: BLEU -" in text
    assert "against good.de, significant" in text
    assert (folder / "report.md").read_text().startswith("# Scores\n")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (folder / "chart.svg").read_text().startswith("<svg")


def test_models_and_files_can_be_compared(folder, bundle, capsys):
    words = [bundle.path, "test.en", "test.de", "--hypothesis", "bad.de", "--resamples", "0"]
    assert score(*words, "--device", "cpu", "--json") == 0
    systems = json.loads(capsys.readouterr().out)["systems"]
    assert [system["name"] for system in systems] == [str(bundle.path), "bad.de"]
    assert "margin" not in systems[0]["scores"]["bleu"]


def test_the_ladder_starts_at_the_saved_model_of_a_bundle(folder, bundle, capsys):
    words = [bundle.path, "test.en", "test.de", "--device", "cpu", "--markdown", "ladder.md"]
    assert score("--ladder", *words) == 0
    captured = capsys.readouterr()
    assert "| compounds split |" in (folder / "ladder.md").read_text()
    assert "compounds split" in captured.out
    assert "has no checkpoints" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the test set is missing; write transduce score MODEL SOURCE REFERENCE"),
        (["test.en", "test.de"], "there is nothing to score; name a model before SOURCE"),
        (["x", "--source", "test.en"], "--source is given without --reference; give both"),
        (["x", "none.en", "test.de"], "none.en does not exist"),
        (["x", "test.en", "test.de"], "x does not exist; expected a bundle"),
        (["--hypothesis", "short.de", "test.en", "test.de"], "short.de has 1 lines but test.de"),
        (["x", "test.en", "empty.de"], "empty.de has no text; expected one sentence per line"),
        (
            ["good.de", "test.en", "test.de"],
            "good.de is a file and no model; to score it write --hypothesis good.de",
        ),
        (["x", "x", "test.en", "test.de"], "x is given twice; give each system once"),
        (["x", "test.en", "test.de", "--json", "no/x.json"], "no/x.json cannot be written"),
        (["--ladder", "a", "b", "test.en", "test.de"], "--ladder has 2 runs and 0 hypothesis"),
        (["--ladder", "x", "test.en", "test.de", "--ter"], "--ter has no effect on the ladder"),
        (
            ["--ladder", "x", "test.en", "test.de", "--precision", "int8"],
            "--precision has no effect on the ladder",
        ),
        (["--ladder", "x", "test.en", "test.de", "--alpha", "0"], "--alpha has no effect on the"),
        (["--ladder", "x", "test.en", "test.de", "--html", "y"], "--html has no effect on the"),
        (
            ["--hypothesis", "good.de", "test.en", "test.de", "--perplexity"],
            "--perplexity is given without a model",
        ),
        (
            ["--hypothesis", "good.de", "test.en", "test.de", "--beam", "0"],
            "--beam is given without a model; files of translations have none",
        ),
        (
            ["--hypothesis", "good.de", "test.en", "test.de", "--markdown", "-"],
            "only --json can be printed; name a file instead of - for other outputs",
        ),
        (["x", "y", "test.en", "test.de", "--out", "z"], "--out writes the translations of one"),
        (
            ["x", "test.en", "test.de", "--resamples", "-1"],
            "--resamples is -1; expected 0 to 10,000",
        ),
        (
            ["x", "test.en", "test.de", "--resamples", "99999999"],
            "--resamples is 99999999; expected 0",
        ),
        (
            ["x", "test.en", "test.de", "--out", "./test.de"],
            "test.de is read and would be overwritten",
        ),
        (
            ["--hypothesis", "bad.de", "test.en", "test.de", "--json", "bad.de"],
            "bad.de is read and would be overwritten; choose another file to write",
        ),
        (
            ["--hypothesis", "bad.de", "test.en", "test.de", "--json", "r", "--html", "r"],
            "r is named for two outputs; give each a file of its own",
        ),
        (["x", "test.en", "test.de", "--worst", "-1"], "--worst is -1; expected at least 0"),
    ],
)
def test_mistakes_are_one_line(folder, capsys, words, message):
    (folder / "short.de").write_text("eins\n")
    (folder / "empty.de").write_text("")
    assert score(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"transduce: {message}")
    assert error.count("\n") == 1


def test_empty_references_are_counted(folder, capsys):
    lines = (folder / "test.de").read_text().split("\n")
    (folder / "test.de").write_text("\n".join([*lines[:4], "", "", *lines[6:]]))
    assert score("--hypothesis", "good.de", "test.en", "test.de", "--resamples", "0") == 0
    error = capsys.readouterr().err
    assert error.startswith("transduce: test.de has 2 empty lines, the first is line 5; any ")


def test_files_of_translations_need_no_torch(folder):
    code = (
        "import sys; from transduce.cli.commands import run; "
        "words = ['--hypothesis', 'bad.de', 'test.en', 'test.de', '--html', 'report.html']; "
        "assert run(['score', *words]) == 0; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
