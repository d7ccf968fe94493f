"""What a user types, what the program answers, and its exit status."""

import io
import os
import subprocess
import sys

import numpy
import pytest
import torch

from transduce.cli.commands import run
from transduce.errors import ConfigError, DataError
from transduce.training.distributed import world


def greet(name: str, *, times: int = 1) -> None:
    """Say hello."""
    print(*["hello", name] * times)


def fail(how: str) -> None:
    """Fail in a given way."""
    raise {
        "user": DataError("x.en is empty; expected text"),
        "file": FileNotFoundError(2, "No such file or directory", "x.en"),
        "plain": OSError("out of luck"),
        "interrupt": KeyboardInterrupt(),
        "exit": SystemExit(7),
    }[how]


GROUPS = {"polite": {"greet": greet}, "impolite": {"fail": fail}}


def test_a_command_gets_its_arguments(capsys):
    assert run(["greet", "you", "--times", "2"], GROUPS) == 0
    assert capsys.readouterr().out == "hello you hello you\n"


def test_help_after_two_dashes_is_text(capsys):
    assert run(["greet", "--", "--help"], GROUPS) == 0
    assert capsys.readouterr().out == "hello --help\n"


# What torchrun sets for the first of two processes.
JOINED = {
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}


@pytest.mark.parametrize(
    ("how", "status", "line"),
    [
        ("user", 2, "transduce: x.en is empty; expected text\n"),
        ("file", 2, "transduce: x.en: No such file or directory\n"),
        ("plain", 2, "transduce: a file: out of luck\n"),
        ("interrupt", 130, "transduce: interrupted\n"),
        ("exit", 7, ""),
    ],
)
def test_an_error_has_a_status_and_a_line(how, status, line, capsys):
    assert run(["fail", how], GROUPS) == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line)


@pytest.mark.parametrize("word", ["a\nb", "--a\nb", "\x1b[2J", "\udcff", "", "-", "--", "-\n"])
def test_a_strange_word_gives_one_line(word, capsys):
    for words in ([word], ["greet", "you", f"--{word}", "x"], ["greet", "you", "--times", word]):
        assert run(words, GROUPS) in (0, 2)
        captured = capsys.readouterr()
        assert captured.err.count("\n") == (0 if captured.out else 1)
        assert "\x1b" not in captured.err


@pytest.mark.parametrize(
    ("local_rank", "met_by_rank", "is_printed_elsewhere", "is_printed"),
    [
        ("0", None, False, True),
        ("1", None, False, False),
        ("x", None, False, True),  # not set by torchrun
        ("2", None, False, True),  # there are only two
        ("9" * 5_000, None, False, True),
        ("1", 5, False, True),
        ("0", 4, True, False),
    ],
)
def test_a_mistake_of_all_ranks_is_printed_once(
    local_rank, met_by_rank, is_printed_elsewhere, is_printed, monkeypatch, capsys
):
    for name, value in {**JOINED, "LOCAL_RANK": local_rank}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(DataError, "met_by_rank", met_by_rank)
    monkeypatch.setattr(DataError, "is_printed_elsewhere", is_printed_elsewhere)
    assert run(["fail", "user"], GROUPS) == 2
    assert bool(capsys.readouterr().err) is is_printed


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR"])
def test_a_mistake_is_printed_where_old_variables_only_look_like_torchrun(
    missing, monkeypatch, capsys
):
    for name, value in {**JOINED, "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    assert run(["fail", "user"], GROUPS) == 2
    assert capsys.readouterr().err


def run_alone(function):
    return run(["it"], {"all": {"it": function}})


def test_a_bug_keeps_its_trace():
    with pytest.raises(KeyError):
        run(["fail", "a bug"], GROUPS)
    with pytest.raises(RuntimeError):
        run_alone(lambda: torch.ones(2) @ torch.ones(3))


def fill_the_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory.\nProcess 12 has 3 GiB.")


@pytest.mark.parametrize(
    ("allocate", "reason"),
    [
        (lambda: torch.empty(1 << 55), "you tried to allocate"),
        (lambda: numpy.ones(1 << 55), "Unable to allocate"),
        (lambda: [0] * (1 << 55), "Python could not"),
        (fill_the_gpu, "CUDA out of memory.;"),
    ],
)
def test_too_little_memory_is_one_line(allocate, reason, capsys):
    assert run_alone(lambda: allocate() and None) == 2
    error = capsys.readouterr().err
    assert error.startswith("transduce: there is too little memory: ")
    assert reason in error
    assert error.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error():
    code = (
        "from transduce.cli.commands import run;"
        "run(['speak'], {'all': {'speak': lambda: print('x' * 999_999)}})"
    )
    speaker = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    speaker.stdout.close()
    assert speaker.stderr.read() == b""
    assert speaker.wait() in (0, 120)  # 120: Python itself could not flush either
    speaker.stderr.close()


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("transduce 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "bas"], "'bas' is not a preset; did you mean base?"),
        (["describe", "x"], "'x' is neither a .toml file nor a preset; the presets are base, "),
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
        (["bench", "x", "y"], "WHAT is 'x'; expected one of decode, serve\n"),
        (["translate", "--model"], "--model has no value; write --model MODEL\n"),
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
        (["data", "get", "phrases", "--pairs", "10", "--out", f"{__file__}/x"], "Not a directory"),
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


def test_a_system_without_fcntl_is_answered_in_one_line():
    code = (
        "import importlib.util, sys; find = importlib.util.find_spec;"
        "importlib.util.find_spec = lambda name, *_: None if name == 'fcntl' else find(name);"
        "from transduce.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("transduce: this system has no fcntl, with which transduce locks")
    assert done.stderr.count("\n") == 1


def test_the_module_runs():
    done = subprocess.run(
        [sys.executable, "-m", "transduce", "describe", "tiny"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Transformer  1,178,624 parameters")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_file_name_that_is_not_utf8_is_written_as_its_bytes(stream, monkeypatch):
    written = io.BytesIO()
    text = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, stream, text)
    assert run(["greet", "you"], GROUPS) == 0
    print("next:", os.fsdecode(b"caf\xe9.en"), "\ud800", file=text)
    assert written.getvalue().endswith(b"next: caf\xe9.en ?\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_no_encoding_of_the_terminal_ends_in_a_trace(encoding, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert run(["describe", "base"]) == 0
    print("\N{GRINNING FACE} \u00a3 \ud800")
    sys.stdout.flush()
    expected = {"ascii": "\N{GRINNING FACE} \u00a3 ?", "utf-8": "\N{GRINNING FACE} \u00a3 ?"}
    shown = written.getvalue().decode("utf-8" if encoding == "ascii" else encoding)
    assert shown.splitlines()[-1] == expected.get(encoding, "? \u00a3 ?")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"WORLD_SIZE": "2"},
            "WORLD_SIZE is 2, so RANK, MASTER_ADDR, MASTER_PORT must be set too",
        ),
        ({"WORLD_SIZE": "junk"}, "the environment variable WORLD_SIZE is 'junk'; expected a"),
        ({"RANK": "junk"}, "the environment variable RANK is 'junk'; expected a number"),
        ({"LOCAL_RANK": "x"}, "the environment variable LOCAL_RANK is 'x'; expected a number"),
        ({"LOCAL_RANK": "\u00b2"}, "the environment variable LOCAL_RANK is"),
        ({**JOINED, "RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2; expected a rank from 0 to 1"),
        ({**JOINED, "MASTER_PORT": "x"}, "the environment variable MASTER_PORT is 'x'; expected a"),
        ({**JOINED, "MASTER_PORT": "99999"}, "MASTER_PORT is '99999'; expected a port"),
    ],
)
def test_junk_in_the_variables_of_torchrun_is_named(variables, message, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    # Nobody waits for processes that never come.
    monkeypatch.setattr("transduce.training.distributed.rendezvous", None)
    with pytest.raises(ConfigError, match=message), world("cpu"):
        pass


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        MemoryError(),
    ],
)
def test_too_little_memory_is_one_line_wherever_it_is_met(error, capsys):
    def command() -> None:
        """Fail."""
        raise error

    assert run(["command"], {"group": {"command": command}}) == 2
    assert capsys.readouterr().err.startswith("transduce: there is too little memory: ")
