"""transduce backtranslate, distil and compress: what they print and what they refuse."""

import tomllib
from types import SimpleNamespace

import pytest

from tests import trained
from tests.distillation.test_distil import SMALL, recipe  # noqa: F401
from transduce.cli.commands import run
from transduce.distillation import comparison
from transduce.errors import MissingExtra
from transduce.storage.bundle import load_bundle


@pytest.fixture(autouse=True)
def one_round(monkeypatch):
    monkeypatch.setattr(comparison, "ROUNDS", 1)


def test_back_translation_ends_with_lines_for_a_recipe(bundle, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "mono.txt"
    pairs = trained.splits()["valid"][:3]
    text.write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    out = tmp_path / "synthetic"
    assert run(["backtranslate", str(bundle.path), str(text), "--out", out.name]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("3 pairs, 0 dropped")
    # The lines are right in a recipe of any folder. What the model wrote is the source of the other direction.
    assert f'source = ["{out / "back-translated.de"}"]' in printed
    assert f'target = ["{out / "back-translated.en"}"]' in printed
    lines = (out / "back-translated.de").read_text(encoding="utf-8").splitlines()
    assert all(line.startswith("<bt> ") for line in lines)

    # They are TOML whatever the folder is called.
    out = tmp_path / 'a "quoted" \\ name'
    assert run(["backtranslate", str(bundle.path), str(text), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    (corpus,) = tomllib.loads(printed.partition("\n")[2])["data"]["corpora"]
    assert corpus["source"] == [str(out / "back-translated.de")]

    # Several processes write the same.
    words = ["backtranslate", str(bundle.path), str(text), "--out", "several", "--processes", "2"]
    assert run(words) == 0
    several = tmp_path / "several" / "back-translated.de"
    assert several.read_text(encoding="utf-8").splitlines() == lines

    assert run(["backtranslate", str(bundle.path), "--out", "other"]) == 2
    assert "the text is missing; name at least one file" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "-2"])
@pytest.mark.parametrize("command", ["backtranslate", "distil"])
def test_fewer_processes_than_one_are_refused_before_the_work(command, count, capsys):
    assert run([command, "absent", "absent", "--out", "x", "--processes", count]) == 2
    refusal = f"transduce: --processes is {count}; expected at least 1\n"
    assert capsys.readouterr().err == refusal


def test_distillation_ends_with_a_table_of_both_models(bundle, recipe, tmp_path, capsys):  # noqa: F811
    words = ["distil", str(bundle.path), str(recipe), *SMALL]
    assert run([*words, "--out", str(tmp_path / "small"), "--student", "tiny"]) == 0
    printed = capsys.readouterr().out
    rows = [line.split()[0] for line in printed.splitlines()[:3]]
    assert rows == ["model", "teacher", "student"]
    assert f"transduce compress {tmp_path / 'small' / 'run'}" in printed

    # With other settings the folder is refused; the advice has no option of another command.
    options = ["--out", str(tmp_path / "small"), "--student", "tiny"]
    assert run([*words, "training.seed=2", *options]) == 2
    refusal = capsys.readouterr().err
    assert "was started with training.seed = 1, not 2; choose another folder" in refusal
    assert "--" not in refusal


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_distillation_has_the_status_of_its_signal(
    bundle,
    recipe,  # noqa: F811
    monkeypatch,
    capsys,
    name,
    status,
):
    stopped = SimpleNamespace(run=SimpleNamespace(state=SimpleNamespace(stopped_by=name)))
    options = {}
    monkeypatch.setattr(
        "transduce.distillation.distil.distil", lambda *_, **given: options.update(given) or stopped
    )
    words = ["distil", str(bundle.path), str(recipe), "--out", "x", "--processes", "3"]
    assert run(words) == status
    assert options["processes"] == 3
    assert "start the command again" in capsys.readouterr().err


def test_compression_needs_no_phrases(bundle, tmp_path, capsys, monkeypatch):
    def phrases(*_arguments):
        raise MissingExtra("babel is not installed")

    monkeypatch.setattr("transduce.corpora.phrases.phrases", phrases)
    out = tmp_path / "int8"
    assert run(["compress", str(bundle.path), "--out", str(out)]) == 0
    reason = "babel is not installed; or name a file of sentences: --source FILE"
    assert capsys.readouterr().out == f"wrote {out}; it is not compared: {reason}\n"
    assert load_bundle(out).recipe == bundle.recipe


def test_compression_ends_with_a_table_of_both_bundles(bundle, tmp_path, capsys):
    out = tmp_path / "int8"
    assert run(["compress", str(bundle.path), "--out", str(out), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[2].split()[0] == "int8"
    assert "MB" in printed
    assert run(["compress", str(bundle.path), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    # A bundle of the same name is a row of its own.
    words = ["compress", str(bundle.path), "--device", "cpu"]
    assert run([*words, "--out", str(tmp_path / bundle.path.name)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[-1] for row in rows[1:]] == ["x)", "x)"]
    words = ["compress", str(bundle.path), "--out", "x", "--reference", "test.de"]
    assert run(words) == 2
    assert "--reference is given without --source" in capsys.readouterr().err
