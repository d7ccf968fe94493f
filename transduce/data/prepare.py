"""From a recipe to a token store: clean, learn the tokenizer, tokenize, write. Each stage goes on where it stopped.

Work is done in `NAME.store.partial`, next to the store. What is finished there is found again by the next call if the
inputs are still the same; the store itself appears in one move, when it is whole.
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

from transduce.config import DataConfig, Recipe
from transduce.data.encode import SIDES, Task, tokenize
from transduce.data.inputs import Inputs, differences, read_inputs
from transduce.data.shuffle import Cleaned, clean, read_spool
from transduce.data.store import MANIFEST, Store
from transduce.data.tokenizer import Tokenizer
from transduce.data.workers import available_cores, progress, spread
from transduce.data.writer import assemble, write_file
from transduce.errors import ConfigError, DataError
from transduce.recipe import load_recipe
from transduce.storage.disk import sync_folder
from transduce.storage.work_folder import alone_in, clear

_ALONE = 20_000  # with fewer pairs, starting processes takes longer than the work

Say = Callable[[str], None]


def default_store(recipe: str) -> Path:
    """Where the store of a recipe goes: `en-de.toml` has `en-de.store` next to it."""
    return Path(recipe).with_suffix(".store")


def prepare(
    recipe: Recipe | str | Path,
    base: Path | None = None,
    out: Path | None = None,
    *,
    workers: int = 0,
    verify: bool = False,
    replace: bool = True,
    tokenizers: Mapping[str, Tokenizer] | None = None,
    say: Say = lambda line: None,
) -> Store:
    """The store of a recipe, made unless it is there already.

    Args:
        recipe: Its `data` section says which text and how; or the file that it is in.
        base: What relative paths start from; by default the folder of the recipe's file, or this one.
        out: The store's folder; by default next to the recipe's file.
        workers: Processes; 0 for as many as there are cores.
        verify: Whether a store that is there already is compared with its checksums, byte by byte.
        replace: Whether a store that is there already, made from other inputs, is made again, or else refused.
        tokenizers: Those to use instead of learning some, by side; the target's alone if it is joint.
        say: Takes a line for each thing done.
    """
    if not isinstance(recipe, Recipe):
        base, out = base or Path(recipe).parent, out or default_store(str(recipe))
        recipe = load_recipe(str(recipe))
    if out is None:
        raise ConfigError(
            "out is missing; a recipe without a file has no name: say where to write the store"
        )
    base = base or Path()
    if not recipe.data.corpora:
        raise ConfigError(
            "data.corpora is empty; name the training text: [[data.corpora]] source = ... target = ..."
        )
    existing = _existing(out, tokenizers, verify, say)
    inputs = read_inputs(
        recipe.data, base, existing.manifest["inputs"] if existing else None, tokenizers
    )
    if existing and existing.fingerprint == inputs.fingerprint:
        return existing
    if existing:
        changed = differences(existing.manifest["inputs"], inputs)
        if not replace:
            raise DataError(
                f"{out} was made with other settings or text ({changed}) and stays as it is; name another place with "
                "--store, or make it again with transduce prepare"
            )
        say(f"{out} is made again, since this changed: {changed}")
    try:
        with _workplace(out, inputs) as work:
            cleaned = _clean(recipe.data, base, inputs, work, workers, say)
            given = dict(tokenizers or {})
            for side, tokenizer in given.items():
                write_file(work / f"{side}.model", tokenizer.to_bytes())
            _learn(recipe.data, work, cleaned["train"], say)
            _tokenize(recipe.data, work, cleaned, given, workers, say)
            _publish(recipe.data, inputs, work, cleaned, given, out)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{error.filename or out} cannot be used: {error.strerror or error}"
            ) from None
        free = shutil.disk_usage(out.parent).free
        raise DataError(
            f"the disk is full: {error.filename or out} could not be written ({free:,} bytes are free); "
            "make room and run transduce prepare again: it goes on where it stopped"
        ) from None
    return Store(out, tokenizers)


def _existing(
    out: Path, tokenizers: Mapping[str, Tokenizer] | None, verify: bool, say: Say
) -> Store | None:
    if not out.exists():
        return None
    if not (out / MANIFEST).exists():  # whatever it is, it is not ours to replace
        raise DataError(
            f"{out} exists and is not a token store; move it away, or name another place"
        )
    try:
        store = Store(out, tokenizers)
        if verify:
            store.verify()
    except DataError as error:
        say(f"{error}; it is made again")
        return None
    return store


@contextmanager
def _workplace(out: Path, inputs: Inputs) -> Iterator[Path]:
    """The folder of unfinished work, emptied if it belongs to other inputs, held by one process at a time."""
    work = out.with_name(out.name + ".partial")
    with alone_in(work, "prepare"):
        owner = work / "fingerprint"
        if not owner.exists() or owner.read_text() != inputs.fingerprint:
            clear(work)
            write_file(owner, inputs.fingerprint.encode())
        yield work
        shutil.rmtree(work)


def _clean(
    data: DataConfig, base: Path, inputs: Inputs, work: Path, workers: int, say: Say
) -> Cleaned:
    record = work / "cleaned.json"
    if record.exists():
        cleaned: Cleaned = json.loads(record.read_bytes())
        return cleaned
    started = time.monotonic()
    with progress("cleaning", None) as advance:
        cleaned = clean(data, base, inputs, work, workers or available_cores(), advance)
    write_file(record, json.dumps(cleaned).encode())
    read, kept = (
        sum(about[what] for about in cleaned["train"].values()) for what in ("read", "kept")
    )
    say(
        f"cleaned {read:,} pairs in {time.monotonic() - started:.0f} s: {kept:,} kept, {read - kept:,} dropped"
    )
    return cleaned


def _learn(data: DataConfig, work: Path, cleaned: dict[str, dict[str, Any]], say: Say) -> None:
    """Train the tokenizer, or one for each side, on a sample of the cleaned training text."""
    if (work / "target.model").exists():
        return
    started = time.monotonic()
    share = data.tokenizer.training_sentences / (
        2 * sum(about["kept"] for about in cleaned.values())
    )
    texts: dict[str, list[str]] = {side: [] for side in SIDES}
    for about in cleaned.values():
        for side, sample in zip(
            SIDES, _sample(work, about["files"], round(share * about["kept"])), strict=True
        ):
            texts[side] += sample
    if data.tokenizer.joint:
        texts = {"target": texts["source"] + texts["target"]}
    for side, sample in texts.items():  # the target's last: it says that this is done
        write_file(work / f"{side}.model", Tokenizer.train(sample, data.tokenizer).to_bytes())
    sentences = sum(map(len, texts.values()))
    say(f"learned a tokenizer from {sentences:,} sentences in {time.monotonic() - started:.0f} s")


def _sample(work: Path, files: Iterable[str], pairs: int) -> tuple[list[str], list[str]]:
    """So many pairs of a spooled corpus: from whole files, since those are random, evenly thinned out."""
    sources: list[str] = []
    targets: list[str] = []
    for name in files:
        if len(sources) < pairs:
            more = read_spool(work / name)
            sources += more[0]
            targets += more[1]
    chosen = np.linspace(0, len(sources) - 1, min(pairs, len(sources))).astype(int).tolist()
    return [sources[row] for row in chosen], [targets[row] for row in chosen]


def _tokenize(
    data: DataConfig,
    work: Path,
    cleaned: Cleaned,
    given: Mapping[str, Tokenizer],
    workers: int,
    say: Say,
) -> None:
    started = time.monotonic()
    models = _models(data, work)
    own = (given.get("source", given["target"]), given["target"]) if given else None
    tasks = [
        Task(
            spooled=work / name,
            done=_done(work, name),
            models=(models.get("source", models["target"]), models["target"]),
            own=own,
            bpe=data.tokenizer.kind == "bpe",
            train=section == "train",
            max_tokens=data.max_tokens,
            sampling=data.tokenizer.sampling if section == "train" else 0.0,
            variants=data.tokenizer.variants
            if data.tokenizer.sampling and section == "train"
            else 1,
        )
        for section, corpora in cleaned.items()
        for about in corpora.values()
        for name in about["files"]
    ]
    tasks = [task for task in tasks if not task.done.exists()]
    pairs = sum(about["kept"] for corpora in cleaned.values() for about in corpora.values())
    done = 0
    with progress("tokenizing", pairs) as advance:
        for more in spread(tokenize, tasks, workers if pairs > _ALONE else 1):
            done += more
            advance(more)
    say(f"tokenized {done:,} pairs in {time.monotonic() - started:.0f} s")


def _publish(
    data: DataConfig,
    inputs: Inputs,
    work: Path,
    cleaned: Cleaned,
    given: Mapping[str, Tokenizer],
    out: Path,
) -> None:
    """Assemble the store and move it where it belongs."""
    pieces = {
        section: {
            name: [_done(work, file) for file in about["files"]] for name, about in corpora.items()
        }
        for section, corpora in cleaned.items()
    }
    tokenizers = {
        side: given.get(side) or Tokenizer.load(path) for side, path in _models(data, work).items()
    }
    assemble(work / "store", data, inputs, tokenizers, pieces, cleaned)
    shutil.rmtree(work / "old", ignore_errors=True)
    if out.exists():
        os.rename(out, work / "old")
    os.rename(work / "store", out)
    sync_folder(out.parent)


def _models(data: DataConfig, work: Path) -> dict[str, Path]:
    sides = ("target",) if data.tokenizer.joint else SIDES
    return {side: work / f"{side}.model" for side in sides}


def _done(work: Path, spooled: str) -> Path:
    return (work / spooled).with_suffix(".npz")
