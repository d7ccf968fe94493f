"""Clean the corpora of a recipe and shuffle their pairs on disk, in constant memory.

Pairs dealt at random into files, each file then read in random order, are a random order of all: a corpus of any size
is shuffled in one pass and in constant memory. Each file is also a unit of work that is done or not done.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transduce.config import CorpusConfig, DataConfig
from transduce.data import rng
from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.cleaning.report import Report
from transduce.data.inputs import Inputs
from transduce.data.pairs import Chunk
from transduce.data.readers.corpus import read_chunks
from transduce.data.store import SECTIONS
from transduce.errors import DataError

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
        where = (rng.raw(len(sources), "spool", self._seed, self.pairs) % len(self.paths)).tolist()
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
                    file.write(
                        json.dumps(held, ensure_ascii=False).encode("utf-8", "surrogatepass")
                        + b"\n"
                    )
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


_SPOOL_BYTES = 2 << 20  # of input for each spooled file, up to so many files:
_SPOOL_FILES = 256

# By section and corpus: its files, the pairs read and kept, reasons.
Cleaned = dict[str, dict[str, dict[str, Any]]]


def clean(
    data: DataConfig,
    base: Path,
    inputs: Inputs,
    work: Path,
    workers: int,
    advance: Callable[[int], None],
) -> Cleaned:
    """Spool every corpus of the recipe into the folder `work`; `advance` is told of pairs as they are read."""
    languages = (data.source_language, data.target_language)
    spools = {section: _spools(section, inputs, work) for section in SECTIONS}
    dropped = {section: {name: Counter[str]() for name in spools[section]} for section in SECTIONS}

    def named(section: str, corpora: tuple[CorpusConfig, ...]) -> Iterator[tuple[str, Chunk]]:
        for name, corpus in zip(inputs.sections[section], corpora, strict=True):
            for chunk in read_chunks(corpus, *languages, base):
                advance(len(chunk))
                yield name, chunk

    def held_out() -> Iterator[Chunk]:
        for section, corpora in (("validation", data.validation), ("test", data.test)):
            for name, chunk in named(section, corpora):
                spools[section][name].extend(chunk.sources, chunk.targets)
                yield chunk

    cleaner = Cleaner(data.clean, *languages, held_out())
    # Cleaned in order, several under way.
    chunks, same_chunks = itertools.tee(named("train", data.corpora))
    names = (name for name, _ in same_chunks)
    for (chunk, reasons), name in zip(
        cleaner.clean((chunk for _, chunk in chunks), workers), names, strict=True
    ):
        kept = [reason is None for reason in reasons]
        sources, targets = (
            list(itertools.compress(side, kept)) for side in (chunk.sources, chunk.targets)
        )
        spools["train"][name].extend(sources, targets)
        dropped["train"][name].update(filter(None, reasons))
    cleaned = {
        section: {
            name: _record(spool, dropped[section][name]) for name, spool in spools[section].items()
        }
        for section in SECTIONS
    }
    if not any(about["kept"] for about in cleaned["train"].values()):
        counted = sum(dropped["train"].values(), Counter[str]())
        nothing = Report(
            *languages, pairs=counted.total(), dropped=dict(counted.most_common())
        ).nothing_left()
        raise DataError(
            f"{nothing}; look at data.corpora with transduce doctor, or loosen data.clean"
        )
    return cleaned


def _spools(section: str, inputs: Inputs, work: Path) -> dict[str, Spool]:
    spools = {}
    for number, name in enumerate(inputs.sections[section]):
        wanted = 1 + inputs.bytes_of(section, name) // _SPOOL_BYTES
        files = min(wanted, _SPOOL_FILES) if section == "train" else 1  # one keeps the order
        spools[name] = Spool(
            [work / f"{section}-{number}-{file}.spool" for file in range(files)], number
        )
    return spools


def _record(spool: Spool, dropped: Counter[str]) -> dict[str, Any]:
    spool.flush()
    return {
        "files": [path.name for path in spool.paths],
        "read": spool.pairs + dropped.total(),
        "kept": spool.pairs,
        "dropped": dict(dropped.most_common()),
    }
