"""A stream in chunks that are translated together: few texts at first, for quick answers, then many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

FIRST, LAST = 16, 1024  # texts of a chunk

Text = TypeVar("Text")


def sizes() -> Iterator[int]:
    """How many texts each chunk of a stream has: ever more, up to `LAST`."""
    size = FIRST
    while True:
        yield size
        size = min(2 * size, LAST)


def chunks(texts: Iterable[Text], size: Iterator[int]) -> Iterator[list[Text]]:
    """The texts in chunks of these sizes; none waits for more than its own chunk."""
    stream = iter(texts)
    while chunk := list(islice(stream, next(size))):
        yield chunk
