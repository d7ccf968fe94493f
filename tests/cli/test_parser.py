"""Any functions become a program: an overview, completion, and one line for what went wrong."""

import gc
import subprocess
import sys

import numpy
import pytest
import torch

from transduce.cli.parser import loading, run
from transduce.errors import DataError


def greet(name: str, *, times: int = 1) -> None:
    """Say hello.

    Args:
        name: To whom.
    """
    print(*["hello", name] * times)


def fail(how: str) -> None:
    """Go wrong."""
    raise {
        "user": DataError("x.en is empty; expected text"),
        "file": FileNotFoundError(2, "No such file or directory", "x.en"),
        "plain": OSError("out of luck"),
        "interrupt": KeyboardInterrupt(),
        "exit": SystemExit(7),
    }[how]


COMMANDS = {"greet": greet, "fail": fail}


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_the_overview_has_a_line_for_each_command(arguments, capsys):
    assert run(COMMANDS, arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"  greet      Say hello.", "  fail       Go wrong."} <= set(lines)


def test_a_command_gets_its_arguments(capsys):
    assert run(COMMANDS, ["greet", "--name", "you", "--times", "2"]) == 0
    assert capsys.readouterr().out == "hello you hello you\n"


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
def test_what_goes_wrong_has_a_status_and_a_line(how, status, line, capsys):
    assert run(COMMANDS, ["fail", "--how", how]) == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line)


@pytest.mark.parametrize(
    ("local_rank", "met_by_rank", "said"),
    [("0", None, True), ("1", None, False), ("1", 5, True), ("0", 4, True)],
)
def test_a_mistake_of_all_ranks_is_said_by_the_first_of_a_machine(
    local_rank, met_by_rank, said, monkeypatch, capsys
):
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.setattr(DataError, "met_by_rank", met_by_rank)
    assert run(COMMANDS, ["fail", "--how", "user"]) == 2
    assert bool(capsys.readouterr().err) is said


def test_a_bug_keeps_its_trace():
    with pytest.raises(KeyError):
        run(COMMANDS, ["fail", "--how", "a bug"])
    with pytest.raises(RuntimeError):
        run({"fail": lambda: torch.ones(2) @ torch.ones(3)}, ["fail"])


def a_full_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory.\nProcess 12 has 3 GiB.")


@pytest.mark.parametrize(
    ("allocate", "library"),
    [
        (lambda: torch.empty(1 << 55), "you tried to allocate"),
        (lambda: numpy.ones(1 << 55), "Unable to allocate"),
        (lambda: [0] * (1 << 55), "Python could not"),
        (a_full_gpu, "CUDA out of memory.;"),
    ],
)
def test_too_little_memory_is_one_line(allocate, library, capsys):
    assert run({"fill": lambda: allocate() and None}, ["fill"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("transduce: there is too little memory: ")
    assert library in error
    assert error.count("\n") == 1


def test_no_garbage_is_looked_for_in_what_is_loaded():
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(DataError), loading():
        fail("user")
    assert gc.isenabled()


def test_a_reader_that_goes_away_is_no_error():
    code = "from transduce.cli.parser import run; run({'speak': lambda: print('x' * 999_999)}, ['speak'])"
    speaker = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    speaker.stdout.close()
    assert speaker.stderr.read() == b""
    assert speaker.wait() in (0, 120)  # 120: Python itself could not flush either
    speaker.stderr.close()
