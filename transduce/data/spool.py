"""Cleaned pairs on their way into a store: dealt at random into files that fit in memory.

Pairs dealt at random into files, each file then read in random order, are a random order of all: a corpus of any size
is shuffled in one pass and in constant memory. Each file is also a unit of work that is done or not done.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from transduce.data import chance

_HELD = 1 << 16  # pairs in memory


class Spool:
    """The files of one corpus; one alone keeps the order."""

    def __init__(self, paths: Sequence[Path], seed: int) -> None:
        self.paths, self._seed = paths, seed
        self.pairs = 0
        self._held: list[tuple[list[str], list[str]]] = [([], []) for _ in paths]
        for path in paths:
            path.write_bytes(b"")

    def extend(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Append pairs."""
        where = (chance.raw(len(sources), "spool", self._seed, self.pairs) % len(self.paths)).tolist()
        for source, target, file in zip(sources, targets, where, strict=True):
            held = self._held[file]
            held[0].append(source)
            held[1].append(target)
        before, self.pairs = self.pairs, self.pairs + len(sources)
        if before // _HELD != self.pairs // _HELD:
            self.flush()

    def flush(self) -> None:
        """Write what is held in memory."""
        for path, held in zip(self.paths, self._held, strict=True):
            if held[0]:
                with path.open("ab") as file:
                    file.write(json.dumps(held, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
                held[0].clear()
                held[1].clear()


def read_spool(path: Path) -> tuple[list[str], list[str]]:
    """The sources and targets of one file, in the order in which they came."""
    sources: list[str] = []
    targets: list[str] = []
    with path.open("rb") as file:
        for line in file:
            some_sources, some_targets = json.loads(line.decode("utf-8", "surrogatepass"))
            sources += some_sources
            targets += some_targets
    return sources, targets
