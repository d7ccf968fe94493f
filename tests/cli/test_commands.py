"""The commands: what a user types, and what the program answers."""

import gc
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from transduce.cli.commands import run
from transduce.recipe import load_recipe
from transduce.training import train as training
from transduce.training.run import Run
from transduce.training.run_state import RunState
from transduce.translation import translator


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("transduce 0.")


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
        (["describe", "base", "--batch-tokens", "9", "x"], "'x' is not an override"),
        (["watch", "runs/x", "y"], "unexpected argument 'y'; write transduce watch RUN [options]"),
        (["schema", "y"], "unexpected argument 'y'; write transduce schema\n"),
        (["schema", "--y"], "--y is not an option of transduce schema; it has no options\n"),
        (
            ["describe", "base", "--batch-tokens", "x"],
            "--batch-tokens is 'x'; expected a whole number\n",
        ),
        (["translate", "--beam", "abc"], "--beam is 'abc'; expected a whole number\n"),
        (["translate", "--alpha", "abc"], "--alpha is 'abc'; expected a number\n"),
        (["describe", "base", "--batch-tokens", "0"], "batch_tokens is 0; it must be at least 1"),
        (["describe"], "RECIPE is missing; write transduce describe RECIPE [SETTING=VALUE ...]"),
        (["export", "runs/x", "y"], "--to is missing; write transduce export MODEL OUT --to "),
        (["export", "runs/x", "y", "--to", "onn"], "--to is 'onn'; did you mean onnx?\n"),
        (["train", "base", "--device", "x"], "--device is 'x'; expected one of cpu, cuda\n"),
        (["bench", "x", "y"], "WHAT is 'x'; expected decode\n"),
        (["translate", "--model"], "--model has no value; write --model FOLDER\n"),
        (["translate", "--scores=yes"], "--scores takes no value; write --scores alone\n"),
        (["new", "x"], "--source is missing; write transduce new FOLDER --source FILE [options]"),
        (["descibe", "base"], "'descibe' is not a command; did you mean describe?"),
        (["tr"], "'tr' is not a command; did you mean train or translate?"),
        (["--verson"], "'--verson' is not an option; did you mean --version?"),
        (["--tyro"], "'--tyro' is not an option; expected one of --help, --version\n"),
        (["fly"], "'fly' is not a command; expected one of new, data, "),
        (["completion", "tcsh"], "SHELL is 'tcsh'; expected one of bash, zsh, fish\n"),
        (["completion"], "SHELL is missing; write transduce completion bash|zsh|fish\n"),
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
        ["--version"],
        ["completion", "bash"],
        *([name, "--help"] for name in ("train", "translate", "doctor", "import")),
        ["train", "--runn", "x"],
        ["describe", "base", "model.d_model=10_000_000_000_000_000_000"],
        ["export", "nowhere", "--to", "onnx", "x"],
        ["import", "huggingface", "nowhere"],
        ["translate", "--model", "nowhere", "x"],
        ["train", "base", "training.step=5"],
        ["train", "base", "--until", "blue=5"],
    ],
)
def test_help_and_mistakes_do_not_wait_for_torch(arguments):
    code = "import sys; from transduce.cli.commands import run; run(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["completion", "zsh"]])
def test_help_imports_no_large_library(arguments):
    code = (
        "import sys; from transduce.cli.commands import run; run(sys.argv[1:]);"
        "print(sorted({'torch', 'numpy', 'rich', 'sentencepiece'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_takes_less_than_0_3_seconds():
    """The time of the processor, which does not depend on what else runs here."""
    code = (
        "import sys, time; from transduce.cli.commands import run; run(['train', '--help']);"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(done.stdout.splitlines()[-1]) < 0.3


def test_settings_can_be_written_between_options(capsys):
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
    output = capsys.readouterr().out
    together = [
        "describe",
        "base",
        "model.h=4",
        "model.N=1",
        "--batch-tokens=100",
        "--batch-sentences=3",
    ]
    assert run(together) == 0
    assert capsys.readouterr().out == output


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


def test_until_overrides_the_setting(tmp_path, monkeypatch):
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
    assert [recipe.training.until for recipe in seen] == ["bleu=10", "bleu=30", "bleu=30", ""]


@pytest.mark.parametrize(("signal", "status"), [("", 0), ("SIGTERM", 143), ("SIGINT", 130)])
def test_a_training_that_a_signal_stopped_has_its_own_status(monkeypatch, signal, status):
    monkeypatch.setattr(training, "train", lambda *_, **__: Run("r", RunState(stopped_by=signal)))
    assert run(["train", "base"]) == status


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


def test_the_schema_is_printed_as_json(monkeypatch, capsys):
    schema = {"title": "recipe", "properties": {"model": {}}}
    module = types.SimpleNamespace(recipe_schema=lambda: schema)
    monkeypatch.setitem(sys.modules, "transduce.recipe_schema", module)
    assert run(["schema"]) == 0
    output = capsys.readouterr().out
    assert json.loads(output) == schema
    assert output == json.dumps(schema, indent=2) + "\n"
    monkeypatch.undo()
    assert run(["schema"]) == 0
    assert "training" in json.loads(capsys.readouterr().out)["properties"]


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
def test_the_exit_is_fast_unless_a_library_would_complain(imported, quick):
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
