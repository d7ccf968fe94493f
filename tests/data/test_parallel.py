"""Work over several processes."""

import os
import signal

import pytest

from transduce.data import parallel
from transduce.data.parallel import progress, spread
from transduce.errors import DataError


def double(number):
    return 2 * number


def fail(number):
    raise DataError(f"number {number} is bad")


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_is_done_once(workers):
    assert sorted(spread(double, range(10), workers)) == list(range(0, 20, 2))
    assert list(spread(double, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_found_by_a_worker_is_told(workers):
    with pytest.raises(DataError, match="is bad"):
        list(spread(fail, range(3), workers))


def test_a_killed_worker_is_one_line():
    with pytest.raises(DataError, match="a worker process was killed, most likely for lack of memory"):
        list(spread(die, range(3), 2))


def test_without_a_terminal_progress_is_lines(capsys, monkeypatch):
    monkeypatch.setattr(parallel, "_SECONDS", -1)
    with progress("tokenising", 3000) as advance:
        advance(1000)
        advance(500)
    assert capsys.readouterr().err.splitlines() == ["tokenising: 1,000 of 3,000", "tokenising: 1,500 of 3,000"]
