"""Every end of a command has an exit status, and every error is one line."""

import gc
import subprocess
import sys

import numpy
import pytest
import torch

from transduce.cli.program import loading, run
from transduce.errors import DataError


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
    assert run(GROUPS, ["greet", "you", "--times", "2"]) == 0
    assert capsys.readouterr().out == "hello you hello you\n"


def test_help_after_two_dashes_is_text(capsys):
    assert run(GROUPS, ["greet", "--", "--help"]) == 0
    assert capsys.readouterr().out == "hello --help\n"


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
    assert run(GROUPS, ["fail", how]) == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line)


@pytest.mark.parametrize("word", ["a\nb", "--a\nb", "\x1b[2J", "\udcff", "", "-", "--", "-\n"])
def test_a_strange_word_gives_one_line(word, capsys):
    for words in ([word], ["greet", "you", f"--{word}", "x"], ["greet", "you", "--times", word]):
        assert run(GROUPS, words) in (0, 2)
        captured = capsys.readouterr()
        assert captured.err.count("\n") == (0 if captured.out else 1)
        assert "\x1b" not in captured.err


@pytest.mark.parametrize(
    ("local_rank", "met_by_rank", "is_printed"),
    [("0", None, True), ("1", None, False), ("1", 5, True), ("0", 4, True)],
)
def test_a_mistake_of_all_ranks_is_printed_by_the_first_of_a_machine(
    local_rank, met_by_rank, is_printed, monkeypatch, capsys
):
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.setattr(DataError, "met_by_rank", met_by_rank)
    assert run(GROUPS, ["fail", "user"]) == 2
    assert bool(capsys.readouterr().err) is is_printed


def run_alone(function):
    return run({"all": {"it": function}}, ["it"])


def test_a_bug_keeps_its_trace():
    with pytest.raises(KeyError):
        run(GROUPS, ["fail", "a bug"])
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


def test_the_garbage_collector_rests_while_a_model_is_loaded():
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(DataError), loading():
        fail("user")
    assert gc.isenabled()


def test_a_reader_that_goes_away_is_no_error():
    code = (
        "from transduce.cli.program import run;"
        "run({'all': {'speak': lambda: print('x' * 999_999)}}, ['speak'])"
    )
    speaker = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    speaker.stdout.close()
    assert speaker.stderr.read() == b""
    assert speaker.wait() in (0, 120)  # 120: Python itself could not flush either
    speaker.stderr.close()
