"""A spooled file as token ids: the work of one process, done or not done."""

from __future__ import annotations

import functools
import itertools
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data import chance
from transduce.data.spool import read_spool
from transduce.data.store import token_type
from transduce.data.tokenizer import Tokenizer
from transduce.data.writer import sync

SIDES = ("source", "target")


@dataclass(frozen=True)
class Task:
    """One spooled file, and how to tokenise it."""

    spooled: Path
    done: Path  # exists once the task is finished
    models: tuple[Path, Path]  # of source and target
    train: bool  # shuffled, without its text; else in order, with it
    max_tokens: int
    sampling: float
    variants: int


def tokenise(task: Task) -> int:
    """Do a task; the number of pairs read."""
    texts = read_spool(task.spooled)
    pairs = len(texts[0])
    seed = zlib.crc32(str(task.spooled.name).encode())
    if task.train:
        order = chance.permutation(pairs, "spooled", seed).tolist()
        texts = ([texts[0][i] for i in order], [texts[1][i] for i in order])
    tokenizers = [_tokenizer(path, path.stat().st_mtime_ns) for path in task.models]
    plain = [tokenizer.encode_batch(side) for tokenizer, side in zip(tokenizers, texts, strict=True)]
    limit = task.max_tokens if task.train else max(map(len, itertools.chain(*plain)), default=0)
    kept = [max(len(s), len(t)) <= limit for s, t in zip(*plain, strict=True)]
    arrays: dict[str, NDArray[Any]] = {"too_many_tokens": np.array(kept.count(False))}
    for side, tokenizer, side_texts, side_ids in zip(SIDES, tokenizers, texts, plain, strict=True):
        side_texts = list(itertools.compress(side_texts, kept))
        side_ids = list(itertools.compress(side_ids, kept))
        for variant in range(task.variants):
            ids = side_ids
            if task.sampling:
                sampled = tokenizer.encode_batch(
                    side_texts, sampling=task.sampling, seed=zlib.crc32(f"{side} {variant} {seed}".encode())
                )
                ids = [s if len(s) <= limit else p for s, p in zip(sampled, side_ids, strict=True)]
            arrays |= _ragged(f"{side}.{variant}", ids, token_type(tokenizer.vocab_size))
        if not task.train:
            arrays |= _ragged(f"{side}.text", [text.encode() for text in side_texts], "u1")
    _save(task.done, arrays)
    return pairs


def _ragged(name: str, rows: Sequence[Sequence[int]], dtype: str) -> dict[str, NDArray[Any]]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    values = np.fromiter(itertools.chain.from_iterable(rows), dtype, int(lengths.sum()))
    return {f"{name}.values": values, f"{name}.lengths": lengths}


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Under another name first, so that a file of this name is whole."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # a zip, whose checksums are compared on reading
        sync(file)
    os.replace(unfinished, path)


@functools.cache
def _tokenizer(path: Path, modified: int) -> Tokenizer:
    return Tokenizer.load(path)
