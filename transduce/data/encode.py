"""Tokenize shuffled pairs: text to the token ids that a store holds, one file per task.

In byte-pair encoding no piece crosses a space, so a word is segmented once for the whole corpus.
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data import rng
from transduce.data.shuffle import read_spool
from transduce.data.store import token_type
from transduce.data.tokenizer import EOS, Tokenizer
from transduce.storage.disk import whole_file

_KNOWN = 1 << 20  # words in memory, about


class RowEncoder:
    """Token ids as the bytes that a store holds, text by text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.dtype = np.dtype(token_type(tokenizer.vocab_size))

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text, ending with `EOS`."""
        return list(map(self._bytes, self._tokenizer.encode_batch(texts)))

    def sample(self, texts: Sequence[str], rate: float, seed: int) -> list[bytes]:
        """Likewise, in a segmentation drawn at random."""
        return list(map(self._bytes, self._tokenizer.encode_batch(texts, sampling=rate, seed=seed)))

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return np.array(ids, self.dtype).tobytes()


class WordEncoder(RowEncoder):
    """The same for byte-pair encoding, several times faster, since it remembers the words it has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._known: dict[str, bytes] = {}
        # Words of which normalization leaves nothing; only the space in front of them stays.
        self._vanishing = {""}
        self._space = self._bytes(tokenizer.encode("  ")[:1])
        self._eos = self._bytes([EOS])

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text, ending with `EOS`."""
        if len(self._known) > _KNOWN:
            self._known.clear()
        split = [text.split(" ") for text in texts]
        self._learn(set(itertools.chain.from_iterable(split)).difference(self._known))
        known = self._known.__getitem__
        return [
            self._eos
            if len(words) == 1 and words[0] in self._vanishing
            else b"".join(map(known, words)) + self._eos
            for words in split
        ]

    def _learn(self, words: Iterable[str]) -> None:
        words = list(words)
        for word, ids in zip(words, self._tokenizer.encode_batch(words), strict=True):
            if ids == [EOS]:
                self._vanishing.add(word)
            self._known[word] = self._bytes(ids[:-1]) or self._space


SIDES = ("source", "target")


@dataclass(frozen=True)
class Task:
    """One spooled file, and how to tokenize it."""

    spooled: Path
    done: Path  # exists once the task is finished
    models: tuple[Path, Path]  # of source and target
    own: tuple[Tokenizer, Tokenizer] | None  # the user's, in place of those
    bpe: bool
    train: bool  # shuffled, without its text; else in order, with it
    max_tokens: int
    sampling: float
    variants: int


def tokenize(task: Task) -> int:
    """Do a task; the number of pairs read."""
    texts = read_spool(task.spooled)
    pairs = len(texts[0])
    seed = zlib.crc32(task.spooled.name.encode())
    if task.train:
        order = rng.permutation(pairs, "spooled", seed).tolist()
        texts = ([texts[0][row] for row in order], [texts[1][row] for row in order])
    if task.own:
        encoders = [RowEncoder(tokenizer) for tokenizer in task.own]
    else:
        encoders = [_encoder(path, path.stat().st_mtime_ns, task.bpe) for path in task.models]
    plain = [encoder.encode(side) for encoder, side in zip(encoders, texts, strict=True)]
    limits = [
        task.max_tokens * encoder.dtype.itemsize if task.train else math.inf for encoder in encoders
    ]
    kept = [len(s) <= limits[0] and len(t) <= limits[1] for s, t in zip(*plain, strict=True)]
    arrays: dict[str, NDArray[Any]] = {"too_many_tokens": np.array(kept.count(False))}
    for side, encoder, side_texts, rows, limit in zip(
        SIDES, encoders, texts, plain, limits, strict=True
    ):
        side_texts, rows = (
            list(itertools.compress(side_texts, kept)),
            list(itertools.compress(rows, kept)),
        )
        for variant in range(task.variants):
            sampled = rows
            if task.sampling:
                sampled = encoder.sample(
                    side_texts, task.sampling, zlib.crc32(f"{side} {variant} {seed}".encode())
                )
                sampled = [
                    row if len(row) <= limit else best
                    for row, best in zip(sampled, rows, strict=True)
                ]
            arrays |= _ragged(f"{side}.{variant}", sampled, encoder.dtype)
        if not task.train:
            arrays |= _ragged(
                f"{side}.text", [text.encode() for text in side_texts], np.dtype("u1")
            )
    _save(task.done, arrays)
    return pairs


def _ragged(name: str, rows: Sequence[bytes], dtype: np.dtype[Any]) -> dict[str, NDArray[Any]]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows)) // dtype.itemsize
    return {f"{name}.values": np.frombuffer(b"".join(rows), dtype), f"{name}.lengths": lengths}


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with whole_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # a zip, whose checksums are compared on reading


@functools.cache
def _encoder(path: Path, modified: int, bpe: bool) -> RowEncoder:
    return (WordEncoder if bpe else RowEncoder)(Tokenizer.load(path))
