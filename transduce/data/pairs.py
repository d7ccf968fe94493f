"""Sentence pairs, one or many, with the file and line that they were read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.data.readers.lines import Remark


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str
    file: str  # the source file, if there are two
    line: int  # counted from 1; in Parquet, the row


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive pairs of a file as lists, which is ten times faster than pair by pair."""

    sources: list[str]
    targets: list[str]
    lines: Sequence[int]
    source_file: str
    target_file: str
    remarks: tuple[Remark, ...] = ()

    def __len__(self) -> int:
        return len(self.sources)

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs one by one."""
        for source, target, line in zip(self.sources, self.targets, self.lines, strict=True):
            yield Pair(source, target, self.source_file, line)
