"""The door: what a user types, and what comes back."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.cli.commands import COMMANDS, run
from transduce.cli.parser import SHELLS
from transduce.recipe import load_recipe
from transduce.training import train as training
from transduce.training.run import Run
from transduce.training.run_state import RunState
from transduce.translation import translator


def test_help_lists_every_command_with_one_line(capsys):
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in COMMANDS:
        assert [line for line in lines if line.startswith(f"  {name} ") and len(line) <= 120]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(name, capsys):
    assert run([name, "--help"]) == 0
    assert f"transduce {name}" in COMMANDS[name].__doc__
    assert "Example" in capsys.readouterr().out


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("transduce 0.")


@pytest.mark.parametrize("shell", SHELLS)
def test_shell_completion_is_printed(shell, capsys):
    assert run(["--tyro-print-completion", shell]) == 0
    assert "describe" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "bas"], "'bas' is neither a .toml file nor a preset"),
        (["describe", "base", "model.M=3"], "model.M is not a setting"),
        (
            ["describe", "base", "model=3", "--batch-tokens", "3", "model.N=2"],
            "model is 3; expected a table of settings",
        ),
        (
            ["describe", "base", "--bach", "3"],
            "--bach is not an option of transduce describe; expected one of --",
        ),
        (
            ["train", "r.toml", "--out", "x"],
            "--out is not an option of transduce train; expected one of --run, --store",
        ),
        (
            ["prepare", "r.toml", "--store=x"],
            "--store is not an option of transduce prepare; expected one of --out",
        ),
        (["train", "r.toml", "--run", "x", "--strat_from", "y"], "did you mean --start-from?"),
        (["train", "r.toml", "--training.seed", "3"], "a setting is written training.seed=value"),
        (["train", "r.toml", "x", "--run", "x", "y"], "Unrecognized options: y"),
        (
            ["describe", "base", "--batch-tokens", "x"],
            "--batch-tokens is 'x'; expected a whole number\n",
        ),
        (["translate", "--beam", "abc"], "--beam is 'abc'; expected a whole number\n"),
        (["translate", "--alpha", "abc"], "--alpha is 'abc'; expected a number\n"),
        (["describe", "base", "--batch-tokens", "0"], "batch_tokens is 0; it must be at least 1"),
        (["describe"], "Missing"),
        (["descibe", "base"], "'descibe' is not a command; did you mean describe?"),
        (["--verson"], "'--verson' is not a command; expected one of describe, data, "),
        (["fly"], "'fly' is not a command; expected one of describe, data, "),
        (
            ["--tyro-print-completion", "tcsh"],
            "no completion script for 'tcsh'; expected one of bash, zsh, fish",
        ),
        (["--tyro-print-completion"], "no completion script for ''"),
        (["--tyro-write-completion", "x"], "--tyro-write-completion"),
        (
            ["train", "r.toml", "--steps", "5"],
            "--steps is not an option of transduce train; a setting is written ",
        ),
        (["prepare", "r.toml", "--max-tokens", "5"], "a setting is written data.max_tokens=value"),
        (["data", "get", "phrases", "--out", f"{__file__}/x"], "Not a directory"),
    ],
)
def test_a_users_error_is_one_line_and_status_2(arguments, message, capsys):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["describe", "base", "model.d_model=10_000_000_000_000_000_000"],
        ["export", "nowhere", "--to", "onnx", "x"],
        ["import", "huggingface", "nowhere"],
        ["translate", "--model", "nowhere", "x"],
        ["train", "base", "training.step=5"],
        ["train", "base", "--until", "blue=5"],
    ],
)
def test_help_and_what_is_refused_at_once_do_not_wait_for_torch(arguments):
    code = "import sys; from transduce.cli.commands import run; run(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


def test_settings_may_stand_between_options(capsys):
    split = [
        "describe",
        "model.N=2",
        "--batch-tokens",
        "100",
        "base",
        "model.h=4",
        "--batch-sentences=3",
        "model.N=1",
    ]
    assert run(split) == 0
    said = capsys.readouterr().out
    together = [
        "describe",
        "base",
        "model.h=4",
        "model.N=1",
        "--batch-tokens=100",
        "--batch-sentences=3",
    ]
    assert run(together) == 0
    assert capsys.readouterr().out == said


def test_the_value_of_an_option_is_no_setting(monkeypatch):
    seen = []
    monkeypatch.setattr(
        training, "train", lambda *given, **named: seen.append((given, named)) or Run("r")
    )
    assert (
        run(["train", "--run", "training.steps=5", "base", "--store=data.v=2", "training.steps=7"])
        == 0
    )
    ((given, named),) = seen
    assert (given, named["overrides"]) == (("base",), ("training.steps=7",))
    assert (named["run"], named["store"]) == (Path("training.steps=5"), Path("data.v=2"))


def test_until_goes_before_the_setting(tmp_path, monkeypatch):
    seen, recipe = [], tmp_path / "r.toml"
    recipe.write_text('[training]\nuntil = "bleu=10"\n')
    monkeypatch.setattr(
        training,
        "train",
        lambda name, overrides, **_: seen.append(load_recipe(name, overrides)) or Run("r"),
    )
    for arguments in (
        [],
        ["--until", "bleu=30"],
        ["--until", "bleu=30", "training.until=bleu=20"],
        ["--until", ""],
    ):
        assert run(["train", str(recipe), *arguments]) == 0
    assert [each.training.until for each in seen] == ["bleu=10", "bleu=30", "bleu=30", ""]


@pytest.mark.parametrize(("signal", "status"), [("", 0), ("SIGTERM", 143), ("SIGINT", 130)])
def test_a_training_that_a_signal_stopped_is_told_from_a_finished_one(monkeypatch, signal, status):
    monkeypatch.setattr(training, "train", lambda *_, **__: Run("r", RunState(stopped_by=signal)))
    assert run(["train", "base"]) == status


@pytest.mark.parametrize(
    "arguments", [["translate", "--model", "x", "x"], ["score", "x", "x.en", "x.de"]]
)
def test_models_are_loaded_without_looking_for_garbage(arguments, monkeypatch):
    seen = []
    monkeypatch.setattr(
        translator,
        "Translator",
        lambda *bundle, **options: seen.append(gc.isenabled()) or sys.exit(7),
    )
    assert (run(arguments), seen, gc.isenabled()) == (7, [False], True)


@pytest.mark.parametrize(("imported", "quick"), [("json", True), ("triton._C.libtriton", False)])
def test_the_end_is_quick_unless_a_library_would_complain(imported, quick):
    code = (
        "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > 0));"
        f"sys.modules[{imported!r}] = sys;"
        "from transduce.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[1:] == [str(quick)]


def test_the_module_runs():
    done = subprocess.run(
        [sys.executable, "-m", "transduce", "describe", "tiny"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Transformer  1,178,624 parameters")
