"""The parts of a large text: one or several processes translate them, each into a file of its own.

A file appears when it is complete. After an interruption only the parts without a file are left.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transduce.config import SearchConfig
from transduce.data.workers import progress, worker_pool
from transduce.engines.ctranslate2 import CTranslate2Engine
from transduce.errors import DataError
from transduce.storage.bundle import load_bundle
from transduce.translation.translator import Translator
from transduce.translation.work_record import write_json

# Texts in the first part and in the largest. The next part is twice as large while one takes less
# than SECONDS: an interruption loses little on a CPU, and a GPU gets enough at once.
FIRST = 500
LARGEST = 20_000
SECONDS = 15


@dataclass(frozen=True)
class Part:
    """Consecutive texts, and the file for their translations."""

    texts: list[str]
    file: Path


@dataclass(frozen=True)
class Model:
    """What another process needs to load a translator, which cannot be sent to it."""

    bundle: Path
    fingerprint: str
    search: SearchConfig
    device: str | None


# What translates a part. It returns the number of texts, and how many seconds they took.
Work = Callable[[Part], tuple[int, float]]


def translate_parts(
    translator: Translator,
    texts: Sequence[str],
    folder: Path,
    *,
    processes: int = 1,
    device: str | None = None,
) -> list[Path]:
    """Translate every part that an earlier call has not translated, and return all files in order.

    Args:
        translator: The model and the settings of the search.
        texts: The texts, one sentence each.
        folder: The folder of the files.
        processes: How many processes translate. Each of several loads the model itself, with the
            engine "auto".
        device: The device of several processes; by default a GPU if there is one.
    """
    work: Work = functools.partial(_translate, translator)
    if processes > 1:
        bundle = translator.bundle
        assert bundle is not None
        model = Model(bundle.path, bundle.fingerprint, translator.search, device)
        work = functools.partial(_translate_with, model)

    # Where each finished part starts, and how many texts it has. Several processes leave gaps.
    files = folder.glob(f"{'[0-9]' * 9}.json")
    sizes = {int(file.stem): len(json.loads(file.read_bytes())) for file in files}
    all_files: list[Path] = []
    size = FIRST
    # CTranslate2 rounds by the batch: its parts must not depend on the speed of the machine.
    may_grow = not isinstance(translator.engine, CTranslate2Engine)

    def missing_parts() -> Iterator[Part]:
        start = 0
        while start < len(texts):
            file = folder / f"{start:09}.json"
            all_files.append(file)
            if start in sizes:
                advance(sizes[start])
            else:
                end = min(other for other in (*sizes, len(texts)) if other > start)
                sizes[start] = min(size, end - start)
                yield Part(list(texts[start : start + sizes[start]]), file)
            start += sizes[start]

    with progress("translating", len(texts)) as advance:
        for translated, seconds in _results(work, missing_parts(), processes):
            advance(translated)
            if may_grow and seconds < SECONDS:
                size = min(max(size, 2 * translated), LARGEST)
    return all_files


def _results(work: Work, parts: Iterator[Part], processes: int) -> Iterator[tuple[int, float]]:
    """Yield what the work returns for each part, in any order.

    A part is taken when a process is free for it: its size depends on the results until then.
    """
    if processes == 1:
        yield from map(work, parts)
        return
    first = list(islice(parts, processes))
    if not first:
        return
    with worker_pool(len(first)) as pool:
        waiting = {pool.submit(work, part) for part in first}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
                waiting |= {pool.submit(work, part) for part in islice(parts, 1)}


def _translate(translator: Translator, part: Part) -> tuple[int, float]:
    """Write the translation of each text as one line, or None if it is not usable."""
    started = time.monotonic()
    one_lines = [" ".join(text.split()) for text in part.texts]
    lines: list[str | None] = []
    for translation in translator.translate_sentences(one_lines):
        line = " ".join(translation.split()) if translation else None
        lines.append(line or None)
    write_json(part.file, lines)
    return len(lines), time.monotonic() - started


def _translate_with(model: Model, part: Part) -> tuple[int, float]:
    return _translate(_load(model), part)


@functools.cache
def _load(model: Model) -> Translator:
    """Return the translator of this process."""
    bundle = load_bundle(model.bundle)
    if bundle.fingerprint != model.fingerprint:
        raise DataError(
            f"{model.bundle} has become another model since the command began; put the old one "
            "back, or start again in another folder"
        )
    return Translator(bundle, device=model.device, search=model.search)
