"""Raw corpora as spooled pairs: the training pairs worth learning from, and the validation and test sets whole."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transduce.config import CorpusConfig, DataConfig
from transduce.data.cleaner import Cleaner
from transduce.data.corpus import read_chunks
from transduce.data.inputs import Inputs
from transduce.data.pairs import Chunk
from transduce.data.report import Report
from transduce.data.spool import Spool
from transduce.data.store import SECTIONS
from transduce.errors import DataError

_SPOOL_BYTES = 2 << 20  # of input for each spooled file, up to so many files:
_SPOOL_FILES = 256

Cleaned = dict[str, dict[str, dict[str, Any]]]  # by section and corpus: its files, the pairs read and kept, reasons


def clean(
    data: DataConfig, base: Path, inputs: Inputs, work: Path, workers: int, advance: Callable[[int], None]
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
    chunks, same_chunks = itertools.tee(named("train", data.corpora))  # cleaned in order, several under way
    names = (name for name, _ in same_chunks)
    for (chunk, reasons), name in zip(cleaner.clean((chunk for _, chunk in chunks), workers), names, strict=True):
        kept = [reason is None for reason in reasons]
        sources, targets = (list(itertools.compress(side, kept)) for side in (chunk.sources, chunk.targets))
        spools["train"][name].extend(sources, targets)
        dropped["train"][name].update(filter(None, reasons))
    cleaned = {
        section: {name: _record(spool, dropped[section][name]) for name, spool in spools[section].items()}
        for section in SECTIONS
    }
    if not any(about["kept"] for about in cleaned["train"].values()):
        counted = sum(dropped["train"].values(), Counter[str]())
        nothing = Report(*languages, pairs=counted.total(), dropped=dict(counted.most_common())).nothing_left()
        raise DataError(f"{nothing}; look at data.corpora with transduce doctor, or loosen data.clean")
    return cleaned


def _spools(section: str, inputs: Inputs, work: Path) -> dict[str, Spool]:
    spools = {}
    for number, name in enumerate(inputs.sections[section]):
        wanted = 1 + inputs.bytes_of(section, name) // _SPOOL_BYTES
        files = min(wanted, _SPOOL_FILES) if section == "train" else 1  # one keeps the order
        spools[name] = Spool([work / f"{section}-{number}-{file}.spool" for file in range(files)], number)
    return spools


def _record(spool: Spool, dropped: Counter[str]) -> dict[str, Any]:
    spool.flush()
    return {
        "files": [path.name for path in spool.paths],
        "read": spool.pairs + dropped.total(),
        "kept": spool.pairs,
        "dropped": dict(dropped.most_common()),
    }
