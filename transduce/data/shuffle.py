"""Clean the corpora of a recipe and shuffle their pairs on disk, in one pass and constant memory.

Pairs are distributed at random over files; `encode` later reads each file in random order. Together
this is a random order of all pairs. Each file is also a unit of work for `encode`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transduce.config import CorpusConfig, DataConfig
from transduce.data import rng
from transduce.data.case_variants import case_variants
from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.cleaning.report import Report
from transduce.data.inputs import Inputs
from transduce.data.pairs import Chunk
from transduce.data.readers.corpus import read_chunks
from transduce.data.store import SECTIONS
from transduce.errors import DataError

_BUFFERED_PAIRS = 1 << 16
_BYTES_PER_FILE = 2 << 20  # of the corpus, for each shuffle file
_MOST_FILES = 256

# By section and corpus: {"files": names, "read": pairs, "kept": pairs, "added": pairs, "dropped":
# {rule: pairs}}. Added pairs are variants of others, and are counted among those that are kept.
Cleaned = dict[str, dict[str, dict[str, Any]]]


def clean(
    data: DataConfig,
    base: Path,
    inputs: Inputs,
    work: Path,
    workers: int,
    advance: Callable[[int], None],
) -> Cleaned:
    """Clean every corpus of a recipe and write its pairs to shuffle files.

    Args:
        data: The corpora and the settings of the cleaning rules.
        base: The folder that relative paths start from.
        inputs: The names and sizes of the corpora.
        work: The folder for the shuffle files.
        workers: The number of processes.
        advance: Called with the number of pairs in each chunk that is read.
    """
    languages = (data.source_language, data.target_language)
    writers = {section: _open_writers(section, inputs, work) for section in SECTIONS}

    def named_chunks(
        section: str, corpora: tuple[CorpusConfig, ...]
    ) -> Iterator[tuple[str, Chunk]]:
        for name, corpus in zip(inputs.sections[section], corpora, strict=True):
            for chunk in read_chunks(corpus, *languages, base):
                advance(len(chunk))
                yield name, chunk

    # Validation and test sets are kept as they are. The cleaner removes them from the training set.
    def held_out_chunks() -> Iterator[Chunk]:
        for section, corpora in (("validation", data.validation), ("test", data.test)):
            for name, chunk in named_chunks(section, corpora):
                writers[section][name].extend(chunk.sources, chunk.targets)
                yield chunk

    cleaner = Cleaner(data.clean, *languages, held_out_chunks())

    # The cleaner reads several chunks ahead and returns them in order: remember their corpora.
    names: deque[str] = deque()

    def training_chunks() -> Iterator[Chunk]:
        for name, chunk in named_chunks("train", data.corpora):
            names.append(name)
            yield chunk

    dropped = {name: Counter[str]() for name in writers["train"]}
    for chunk, reasons in cleaner.clean(training_chunks(), workers):
        name = names.popleft()
        kept = [reason is None for reason in reasons]
        sources = list(itertools.compress(chunk.sources, kept))
        targets = list(itertools.compress(chunk.targets, kept))
        writer = writers["train"][name]
        first = writer.pairs
        writer.extend(sources, targets)
        if data.case_variants:
            more = case_variants(sources, targets, data.case_variants, writer.seed, first)
            writer.add(*more)
        dropped[name].update(filter(None, reasons))

    cleaned: Cleaned = {}
    for section in SECTIONS:
        cleaned[section] = {}
        for name, writer in writers[section].items():
            reasons_counted = dropped[name] if section == "train" else Counter[str]()
            cleaned[section][name] = _finish(writer, reasons_counted)
    if not any(record["kept"] for record in cleaned["train"].values()):
        raise _nothing_left(sum(dropped.values(), Counter[str]()), languages)
    return cleaned


class ShuffleWriter:
    """Distributes the pairs of one corpus over files at random. A single file keeps their order."""

    def __init__(self, paths: Sequence[Path], seed: int) -> None:
        """Start with empty files."""
        self.paths = paths
        self.pairs = 0
        self.added = 0  # pairs that are not in the corpus itself
        self.seed = seed
        self._buffers: list[tuple[list[str], list[str]]] = [([], []) for _ in paths]
        for path in paths:
            path.write_bytes(b"")

    def extend(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Append pairs."""
        numbers = rng.raw(len(sources), "spool", self.seed, self.pairs) % len(self.paths)
        for source, target, number in zip(sources, targets, numbers.tolist(), strict=True):
            buffered_sources, buffered_targets = self._buffers[number]
            buffered_sources.append(source)
            buffered_targets.append(target)
        pairs_before = self.pairs
        self.pairs += len(sources)
        if pairs_before // _BUFFERED_PAIRS != self.pairs // _BUFFERED_PAIRS:
            self.flush()

    def add(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Append pairs that are not in the corpus itself."""
        self.extend(sources, targets)
        self.added += len(sources)

    def flush(self) -> None:
        """Write the buffered pairs: a line for each file, which is a JSON list of two lists."""
        for path, buffer in zip(self.paths, self._buffers, strict=True):
            sources, targets = buffer
            if not sources:
                continue
            line = json.dumps(buffer, ensure_ascii=False).encode("utf-8", "surrogatepass")
            with path.open("ab") as file:
                file.write(line + b"\n")
            sources.clear()
            targets.clear()


def read_shuffle_file(path: Path) -> tuple[list[str], list[str]]:
    """Return the sources and targets of one shuffle file, in the order in which they were added."""
    sources: list[str] = []
    targets: list[str] = []
    with path.open("rb") as file:
        for line in file:
            more_sources, more_targets = json.loads(line.decode("utf-8", "surrogatepass"))
            sources += more_sources
            targets += more_targets
    return sources, targets


def _open_writers(section: str, inputs: Inputs, work: Path) -> dict[str, ShuffleWriter]:
    """Return a writer for each corpus of a section, by name."""
    writers = {}
    for number, name in enumerate(inputs.sections[section]):
        files = 1  # validation and test sets keep their order
        if section == "train":
            files = min(1 + inputs.bytes_of(section, name) // _BYTES_PER_FILE, _MOST_FILES)
        # `encode` derives its seed from the file's name: another name would give another order.
        paths = [work / f"{section}-{number}-{file}.spool" for file in range(files)]
        writers[name] = ShuffleWriter(paths, number)
    return writers


def _finish(writer: ShuffleWriter, dropped: Counter[str]) -> dict[str, Any]:
    """Write what is still buffered, and return the record of the corpus."""
    writer.flush()
    return {
        "files": [path.name for path in writer.paths],
        "read": writer.pairs - writer.added + dropped.total(),
        "kept": writer.pairs,
        "added": writer.added,
        "dropped": dict(dropped.most_common()),
    }


def _nothing_left(dropped: Counter[str], languages: tuple[str, str]) -> DataError:
    report = Report(*languages, pairs=dropped.total(), dropped=dict(dropped.most_common()))
    return DataError(
        f"{report.nothing_left()}; look at data.corpora with transduce doctor, or loosen data.clean"
    )
