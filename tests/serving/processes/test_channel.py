"""Questions between two processes, here between two ends in one process."""

import asyncio
import socket
import threading
import time
from multiprocessing.connection import Connection

import pytest

from transduce.serving.processes import channel
from transduce.serving.processes.channel import Answering, Asking
from transduce.serving.queue.answer import Answer
from transduce.serving.refusals import Busy, Cancelled, RequestError, TooManyRequests


class Ends:
    """Both ends of a channel; answers to `later` are given by the test."""

    def __init__(self):
        self.line, end = socket.socketpair()
        self.later = {}
        self.closings = []
        self.error = Busy("not now", 7)
        functions = {
            "double": lambda number: 2 * number,
            "later": self.answer_later,
            "fail": self.fail,
        }
        answering = Connection(end.detach())
        Answering(answering, functions, lambda: self.closings.append("closed"), first="hello")
        self.connection = Connection(self.line.fileno())
        assert self.connection.recv() == "hello"
        self.asking = Asking(self.connection)
        self.asking.on_close = lambda: self.closings.append("closed here")

    def answer_later(self, name):
        self.later[name] = Answer()
        return self.later[name]

    def fail(self):
        raise self.error

    def ask_later(self, name):
        answer = Answer()
        self.asking.ask_later(answer, "later", name)
        wait_until(lambda: name in self.later)
        return answer

    def close(self):
        """Do what the end of a process does."""
        self.line.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: len(self.closings) == 2 and not self.asking.is_open)


@pytest.fixture
def ends():
    ends = Ends()
    yield ends
    if ends.asking.is_open:
        ends.close()
    ends.line.detach()
    ends.connection.close()


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_many_threads_get_their_own_answers(ends):
    found = {}

    def ask(number):
        found[number] = [ends.asking.ask("double", number + 10 * n) for n in range(50)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == {m: [2 * (m + 10 * n) for n in range(50)] for m in range(10)}


def test_answers_come_in_any_order(ends):
    first, second = ends.ask_later("first"), ends.ask_later("second")
    ends.later["second"].succeed(2)
    assert second.result(10) == 2
    assert ends.asking.ask("double", 4) == 8
    ends.later["first"].fail(Busy("not now", 7))
    with pytest.raises(Busy, match="not now") as refusal:
        first.result(10)
    assert refusal.value.retry_after == 7


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (Busy("not now", 7), Busy, "not now"),
        (TooManyRequests("Slowdown", 7), TooManyRequests, "Slowdown"),
        (RequestError(418, "a teapot"), RequestError, "a teapot"),
        (ZeroDivisionError("by zero"), RuntimeError, "ZeroDivisionError: by zero"),
    ],
    ids=["busy", "too fast", "refused", "a bug"],
)
def test_errors_arrive_with_all_that_they_say(ends, error, kind, message):
    ends.error = error
    with pytest.raises(kind, match=message) as raised:
        ends.asking.ask("fail")
    if kind is not RuntimeError:
        assert vars(raised.value) == vars(error)


def test_a_question_that_ends_otherwise_is_cancelled(ends):
    answer = ends.ask_later("unwanted")
    answer.fail(Cancelled("nobody waits"))
    with pytest.raises(Cancelled):
        ends.later["unwanted"].result(10)
    assert ends.asking.ask("double", 1) == 2  # the line still works


def test_an_answer_that_does_not_come_is_given_up(ends, monkeypatch):
    monkeypatch.setattr(channel, "PATIENCE", 0.05)
    with pytest.raises(Busy, match="does not get on"):
        ends.asking.ask("later", "never")
    with pytest.raises(Cancelled):
        ends.later["never"].result(10)


def test_an_event_loop_goes_on_while_a_question_is_asked(ends, monkeypatch):
    async def ask():
        waiting = asyncio.ensure_future(ends.asking.ask_meanwhile("later", "slow"))
        assert await ends.asking.ask_meanwhile("double", 4) == 8
        while "slow" not in ends.later:
            await asyncio.sleep(0.001)
        ends.later["slow"].succeed("done")
        assert await waiting == "done"

        monkeypatch.setattr(channel, "PATIENCE", 0.05)
        with pytest.raises(Busy, match="does not get on"):
            await ends.asking.ask_meanwhile("later", "never")
        monkeypatch.setattr(channel, "PATIENCE", 10.0)
        with pytest.raises(Busy, match="not now") as refusal:
            await ends.asking.ask_meanwhile("fail")
        assert refusal.value.retry_after == 7

    asyncio.run(ask())
    with pytest.raises(Cancelled):
        ends.later["never"].result(10)


def test_when_the_line_is_cut_nobody_waits_any_longer(ends):
    waiting = ends.ask_later("waiting")
    ends.close()
    with pytest.raises(Busy, match="stopping"):
        waiting.result(10)
    with pytest.raises(Cancelled):
        ends.later["waiting"].result(10)
    with pytest.raises(Busy, match="stopping"):
        ends.asking.ask("double", 1)
    assert sorted(ends.closings) == ["closed", "closed here"]


def test_an_answer_is_given_once():
    answer = Answer()
    answer.succeed(1)
    answer.fail(ValueError())
    answer.succeed(2)
    assert answer.result() == 1
