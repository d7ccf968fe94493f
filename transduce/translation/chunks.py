"""Chunks of a stream that are translated together: small ones first, for quick answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

# Texts in the first chunk and in the largest.
FIRST = 16
LAST = 1024

Text = TypeVar("Text")


def sizes(first: int = FIRST) -> Iterator[int]:
    """Yield the sizes of the chunks of a stream, which double up to `LAST`."""
    size = first
    while True:
        yield size
        size = min(2 * size, LAST)


def chunks(texts: Iterable[Text], size: Iterator[int]) -> Iterator[list[Text]]:
    """Yield the texts in chunks of these sizes, each as soon as it is complete."""
    stream = iter(texts)
    while chunk := list(islice(stream, next(size))):
        yield chunk
