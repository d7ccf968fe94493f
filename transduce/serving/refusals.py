"""Requests that are refused: the errors, with what the answer needs besides their message."""

from __future__ import annotations

from transduce.errors import BundleError, TransduceError

FAILED = "the server failed; its log has the reason"


class RequestError(TransduceError):
    """A request that is refused, with the status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TooManyRequests(RequestError):
    """A caller that is faster than its rate allows."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(429, message)
        self.retry_after = retry_after  # seconds


class Busy(TransduceError):
    """A request that the server has no room or no time for now."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class Cancelled(TransduceError):
    """A request whose client has gone."""


def is_fault(error: Exception) -> bool:
    """Return whether an error is one of the server: a bug, or a model damaged on disk."""
    return not isinstance(error, TransduceError) or isinstance(error, BundleError)
