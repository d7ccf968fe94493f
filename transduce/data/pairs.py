"""A sentence pair, and many of them at once, with where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.data.readers.lines import Remark


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str
    file: str  # of two parallel files, the source's
    line: int  # from 1; of Parquet, the row


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive pairs of a file, as lists: ten times faster to carry about than pair by pair."""

    sources: list[str]
    targets: list[str]
    lines: Sequence[int]
    source_file: str
    target_file: str
    remarks: tuple[Remark, ...] = ()

    def __len__(self) -> int:
        return len(self.sources)

    def pairs(self) -> Iterator[Pair]:
        """One by one."""
        for source, target, line in zip(self.sources, self.targets, self.lines, strict=True):
            yield Pair(source, target, self.source_file, line)
