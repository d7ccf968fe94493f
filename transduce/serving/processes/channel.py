"""Questions between two processes: one asks from many threads, the other answers in any order.

Messages are pickled, because both ends are this program on one machine, over a socket that nobody
else can reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from transduce.errors import TransduceError
from transduce.serving.queue.answer import Answer
from transduce.serving.refusals import Busy, Cancelled

PATIENCE = 10.0  # seconds until an answer must be there that needs no work
CANCEL = "cancel"  # instead of a question: the answer to the one of this number is not needed
# An error as its type, its message and what else it says.
Described = tuple[type[BaseException], str, dict[str, int | float | str]]
_SIMPLE = (int, float, str)
Message = tuple[int, Any, Described | None]  # number of the question; answer, or error


class Asking:
    """The end that asks."""

    def __init__(self, connection: Connection) -> None:
        self.is_open = True
        self.on_close: Callable[[], None] = lambda: None  # called when the other end is closed
        self._connection = connection
        self._numbers = itertools.count()
        self._unanswered: dict[int, Answer[Any]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="answers", daemon=True).start()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Ask a question that needs no work; return the answer, or raise the error."""
        answer = Answer[Any]()
        self.ask_later(answer, name, *arguments)
        try:
            return answer.result(PATIENCE)
        except TimeoutError:
            answer.fail(_late())
            return answer.result()

    async def ask_meanwhile(self, name: str, *arguments: Any) -> Any:
        """Do the same while an event loop goes on."""
        answer = Answer[Any]()
        self.ask_later(answer, name, *arguments)
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise _late() from None

    def ask_later(self, answer: Answer[Any], name: str, *arguments: Any) -> None:
        """Ask a question. It is cancelled if something else ends the answer."""
        number = next(self._numbers)
        with self._lock:
            if not self.is_open:
                raise Busy("the server is stopping", 5)
            self._unanswered[number] = answer
            self._send(number, name, arguments)
        answer.add_done_callback(partial(self._cancel, number))

    def _cancel(self, number: int, _: object) -> None:
        """Cancel a question that is not answered yet."""
        with self._lock:
            if self._unanswered.pop(number, None):
                self._send(number, CANCEL, ())

    def _send(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        # If the other end is closed, `_read` notices it, too.
        with contextlib.suppress(OSError):
            self._connection.send((number, name, arguments))

    def _read(self) -> None:
        """Pass on answers until the other end is closed."""
        try:
            while True:
                messages: list[Message] = self._connection.recv()
                for number, result, error in messages:
                    with self._lock:
                        answer = self._unanswered.pop(number, None)
                    if answer and error:
                        answer.fail(_made_again(*error))
                    elif answer:
                        answer.succeed(result)
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                self.is_open = False
                unanswered = [*self._unanswered.values()]
                self._unanswered.clear()
            for answer in unanswered:
                answer.fail(Busy("the server is stopping", 5))
            self.on_close()


class Answering:
    """The end that answers, in threads of its own."""

    def __init__(
        self,
        connection: Connection,
        functions: Mapping[str, Callable[..., Any]],
        on_close: Callable[[], None],
        first: object,
    ) -> None:
        """Answer until the other end is closed.

        Args:
            connection: Leads to the other end.
            functions: By the name of a question, what answers it. An `Answer` that a function
                returns is sent when it has ended.
            on_close: Is called when the other end is closed.
            first: What the other end reads before it asks.
        """
        self._first = first
        self._connection = connection
        self._functions = functions
        self._on_close = on_close
        self._running: dict[int, Answer[Any]] = {}
        self._outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="questions", daemon=True).start()
        threading.Thread(target=self._write, name="answers", daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._handle(*self._connection.recv())
        self._outbox.put(None)
        for number in [*self._running]:
            self._handle(number, CANCEL, ())
        self._on_close()

    def _handle(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        """Answer a question, now or when it is possible."""
        if name == CANCEL:
            answer = self._running.pop(number, None)
            if answer:
                answer.fail(Cancelled("the client has gone"))
            return
        try:
            result = self._functions[name](*arguments)
        except Exception as error:
            self._outbox.put((number, None, _described(error)))
            return
        if isinstance(result, Answer):
            self._running[number] = result
            result.add_done_callback(partial(self._pass_on, number))
        else:
            self._outbox.put((number, result, None))

    def _pass_on(self, number: int, answer: Answer[Any]) -> None:
        """Send an answer that has ended, unless its question was cancelled."""
        if self._running.pop(number, None):
            error = answer.exception()
            result = None if error else answer.result()
            self._outbox.put((number, result, _described(error) if error else None))

    def _write(self) -> None:
        """Send answers until there are no more questions; those of one moment go together."""
        with self._connection:
            with contextlib.suppress(OSError):
                self._connection.send(self._first)
            while (message := self._outbox.get()) is not None:
                messages = [message]
                while not self._outbox.empty() and (message := self._outbox.get()) is not None:
                    messages.append(message)
                with contextlib.suppress(OSError):
                    self._connection.send(messages)
                if message is None:
                    return


def _described(error: BaseException) -> Described:
    """Describe an error, so that it can be made again in another process."""
    if not isinstance(error, TransduceError):
        return RuntimeError, "".join(traceback.format_exception(error)), {}
    simple = {name: value for name, value in vars(error).items() if isinstance(value, _SIMPLE)}
    return type(error), str(error), simple


def _made_again(kind: type[BaseException], message: str, values: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, message)
    vars(error).update(values)
    return error


def _late() -> Busy:
    return Busy("the server does not get on; try again later", 5)
