"""Make a token store in stages: clean, learn the tokenizer, tokenize, write.

The work is done in `NAME.store.partial`, next to the store. An interrupted call is resumed by the
next one, stage by stage, if the inputs are still the same. The finished store appears in one move.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from transduce.config import DataConfig
from transduce.cores import available_cores
from transduce.data.encode import SIDES, Task, tokenize
from transduce.data.inputs import Inputs
from transduce.data.shuffle import Cleaned, clean, read_shuffle_file
from transduce.data.tokenizer import Tokenizer
from transduce.data.workers import progress, spread
from transduce.data.writer import assemble, write_file
from transduce.errors import DataError
from transduce.storage.disk import describe_failure, sync_folder
from transduce.storage.lock import clear_work_folder, lock_work_folder

# With fewer pairs, starting processes takes longer than the work.
_FEW_PAIRS = 20_000

Say = Callable[[str], None]


def make_store(
    data: DataConfig,
    base: Path,
    inputs: Inputs,
    given: Mapping[str, Tokenizer],
    out: Path,
    workers: int,
    say: Say,
) -> None:
    """Run all stages; a stage that an earlier call finished is skipped."""
    try:
        with _work_folder(out, inputs) as work:
            cleaned = _clean(data, base, inputs, work, workers, say)
            for side, tokenizer in given.items():
                write_file(work / f"{side}.model", tokenizer.to_bytes())
            _learn(data, work, cleaned["train"], say)
            _tokenize(data, work, cleaned, given, workers, say)
            _publish(data, inputs, work, cleaned, given, out)
    except OSError as error:
        raise _explain(error, out) from None


@contextmanager
def _work_folder(out: Path, inputs: Inputs) -> Iterator[Path]:
    """Lock the folder of unfinished work, and empty it if it belongs to other inputs."""
    work = out.with_name(out.name + ".partial")
    with lock_work_folder(work, "prepare"):
        fingerprint = work / "fingerprint"
        if not fingerprint.exists() or fingerprint.read_text() != inputs.fingerprint:
            clear_work_folder(work)
            write_file(fingerprint, inputs.fingerprint.encode())
        yield work
        shutil.rmtree(work)


def _clean(
    data: DataConfig, base: Path, inputs: Inputs, work: Path, workers: int, say: Say
) -> Cleaned:
    """Clean the corpora and write shuffle files; `cleaned.json` marks this stage as done."""
    record = work / "cleaned.json"
    if record.exists():
        cleaned: Cleaned = json.loads(record.read_bytes())
        return cleaned
    started = time.monotonic()
    with progress("cleaning", None) as advance:
        cleaned = clean(data, base, inputs, work, workers or available_cores(), advance)
    write_file(record, json.dumps(cleaned).encode())

    seconds = time.monotonic() - started
    train = cleaned["train"].values()
    read = sum(corpus["read"] for corpus in train)
    added = sum(corpus["added"] for corpus in train)
    kept = sum(corpus["kept"] for corpus in train) - added
    message = f"cleaned {read:,} pairs in {seconds:.0f} s: {kept:,} kept, {read - kept:,} dropped"
    say(f"{message}, {added:,} added in other cases" if added else message)
    return cleaned


def _learn(data: DataConfig, work: Path, cleaned: dict[str, dict[str, Any]], say: Say) -> None:
    """Train the tokenizer, or one for each side, on a sample of the cleaned training text."""
    if (work / "target.model").exists():
        return
    started = time.monotonic()
    pairs = sum(corpus["kept"] for corpus in cleaned.values())
    share = data.tokenizer.training_sentences / (2 * pairs)
    sources: list[str] = []
    targets: list[str] = []
    for corpus in cleaned.values():
        more_sources, more_targets = _sample(work, corpus["files"], round(share * corpus["kept"]))
        sources += more_sources
        targets += more_targets

    # The target's model is written last: it marks this stage as done.
    texts = {"source": sources, "target": targets}
    if data.tokenizer.joint:
        texts = {"target": sources + targets}
    for side, sample in texts.items():
        write_file(work / f"{side}.model", Tokenizer.train(sample, data.tokenizer).to_bytes())
    sentences = sum(map(len, texts.values()))
    say(f"learned a tokenizer from {sentences:,} sentences in {time.monotonic() - started:.0f} s")


def _sample(work: Path, files: Iterable[str], pairs: int) -> tuple[list[str], list[str]]:
    """Return a number of pairs of a corpus, evenly spaced over its first shuffle files.

    The files are random samples already, so reading only as many as are needed is enough.
    """
    sources: list[str] = []
    targets: list[str] = []
    for name in files:
        if len(sources) < pairs:
            more_sources, more_targets = read_shuffle_file(work / name)
            sources += more_sources
            targets += more_targets
    spaced = np.linspace(0, len(sources) - 1, min(pairs, len(sources)))
    rows = spaced.astype(int).tolist()
    return [sources[row] for row in rows], [targets[row] for row in rows]


def _tokenize(
    data: DataConfig,
    work: Path,
    cleaned: Cleaned,
    given: Mapping[str, Tokenizer],
    workers: int,
    say: Say,
) -> None:
    """Tokenize every shuffle file that an earlier call has not tokenized."""
    started = time.monotonic()
    tasks = []
    pairs = 0
    for section, corpora in cleaned.items():
        for corpus in corpora.values():
            pairs += corpus["kept"]
            tasks += [_task(data, work, section, name, given) for name in corpus["files"]]
    tasks = [task for task in tasks if not task.encoded.exists()]

    tokenized = 0
    with progress("tokenizing", pairs) as advance:
        for more in spread(tokenize, tasks, workers if pairs > _FEW_PAIRS else 1):
            tokenized += more
            advance(more)
    say(f"tokenized {tokenized:,} pairs in {time.monotonic() - started:.0f} s")


def _task(
    data: DataConfig, work: Path, section: str, name: str, given: Mapping[str, Tokenizer]
) -> Task:
    """Return the task that tokenizes one shuffle file."""
    train = section == "train"
    models = _model_files(data, work)
    own = (given.get("source", given["target"]), given["target"]) if given else None
    return Task(
        text=work / name,
        encoded=_encoded_file(work, name),
        models=(models.get("source", models["target"]), models["target"]),
        own=own,
        bpe=data.tokenizer.kind == "bpe",
        train=train,
        max_tokens=data.max_tokens,
        sampling=data.tokenizer.sampling if train else 0.0,
        variants=data.tokenizer.variants if data.tokenizer.sampling and train else 1,
    )


def _publish(
    data: DataConfig,
    inputs: Inputs,
    work: Path,
    cleaned: Cleaned,
    given: Mapping[str, Tokenizer],
    out: Path,
) -> None:
    """Assemble the store in the work folder and move it to its place."""
    pieces: dict[str, dict[str, list[Path]]] = {}
    for section, corpora in cleaned.items():
        pieces[section] = {}
        for name, corpus in corpora.items():
            pieces[section][name] = [_encoded_file(work, file) for file in corpus["files"]]
    tokenizers = {}
    for side, path in _model_files(data, work).items():
        tokenizers[side] = given.get(side) or Tokenizer.load(path)
    assemble(work / "store", data, inputs, tokenizers, pieces, cleaned)

    # Move the old store away first: a folder cannot be renamed over another.
    shutil.rmtree(work / "old", ignore_errors=True)
    if out.exists():
        os.rename(out, work / "old")
    os.rename(work / "store", out)
    sync_folder(out.parent)


def _explain(error: OSError, out: Path) -> DataError:
    """Return the message for a failure of the file system."""
    path = error.filename or out
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return DataError(f"{path} cannot be used: {describe_failure(error)}")
    free = shutil.disk_usage(out.parent).free
    return DataError(
        f"the disk is full: {path} could not be written ({free:,} bytes are free); make room and "
        "start the same command again: it goes on where it stopped"
    )


def _model_files(data: DataConfig, work: Path) -> dict[str, Path]:
    """Return the tokenizer's file of each side."""
    sides = ("target",) if data.tokenizer.joint else SIDES
    return {side: work / f"{side}.model" for side in sides}


def _encoded_file(work: Path, shuffle_file: str) -> Path:
    return (work / shuffle_file).with_suffix(".npz")
