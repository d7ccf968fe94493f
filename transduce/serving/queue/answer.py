"""An answer that comes later, from another thread or process; it is given once."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

Result = TypeVar("Result")


class Answer(Future[Result]):
    """A future that several threads may end: the first one does, the others change nothing."""

    def succeed(self, result: Result) -> None:
        """End with a result, unless it has ended before."""
        with contextlib.suppress(InvalidStateError):
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended before."""
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)
