"""Tokenize shuffled pairs: from files of text to files of token ids, one task for each."""

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
from transduce.data.shuffle import read_shuffle_file
from transduce.data.store import token_type
from transduce.data.tokenizer import EOS, Tokenizer
from transduce.storage.disk import whole_file

SIDES = ("source", "target")

_CACHED_WORDS = 1 << 20  # approximately


@dataclass(frozen=True)
class Task:
    """One shuffle file, and how to tokenize it."""

    text: Path  # the shuffle file
    encoded: Path  # the result, which exists once the task is done
    models: tuple[Path, Path]  # the tokenizers of source and target
    own: tuple[Tokenizer, Tokenizer] | None  # the user's tokenizers, used instead of `models`
    bpe: bool
    train: bool  # training pairs are shuffled, without text; others are in order, with text
    max_tokens: int
    sampling: float
    variants: int


def tokenize(task: Task) -> int:
    """Do a task and return the number of pairs read.

    The result holds ragged arrays: `SIDE.VARIANT` has token ids, `SIDE.text` has UTF-8 bytes.
    """
    sources, targets = read_shuffle_file(task.text)
    pairs = len(sources)
    seed = zlib.crc32(task.text.name.encode())
    if task.train:
        order = rng.permutation(pairs, "spooled", seed).tolist()
        sources = [sources[row] for row in order]
        targets = [targets[row] for row in order]

    # Training pairs with a side that is too long are dropped.
    encoders = _encoders(task)
    encoded = (encoders[0].encode(sources), encoders[1].encode(targets))
    limits = [_most_bytes(task, encoder) for encoder in encoders]
    kept = []
    for source_ids, target_ids in zip(*encoded, strict=True):
        kept.append(len(source_ids) <= limits[0] and len(target_ids) <= limits[1])

    arrays: dict[str, NDArray[Any]] = {"too_many_tokens": np.array(kept.count(False))}
    for number, texts in enumerate((sources, targets)):
        side = SIDES[number]
        encoder = encoders[number]
        kept_texts = list(itertools.compress(texts, kept))
        rows = list(itertools.compress(encoded[number], kept))
        for variant in range(task.variants):
            variant_rows = rows
            if task.sampling:
                variant_seed = zlib.crc32(f"{side} {variant} {seed}".encode())
                sampled = encoder.sample(kept_texts, task.sampling, variant_seed)
                variant_rows = _shorter(sampled, rows, limits[number])
            arrays |= _ragged(f"{side}.{variant}", variant_rows, encoder.dtype)
        if not task.train:
            utf8 = [text.encode() for text in kept_texts]
            arrays |= _ragged(f"{side}.text", utf8, np.dtype("u1"))

    with whole_file(task.encoded) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # a zip file, which has checksums
    return pairs


class RowEncoder:
    """Encodes texts as the bytes of their token ids, as a store holds them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Encode with this tokenizer."""
        self._tokenizer = tokenizer
        self.dtype = np.dtype(token_type(tokenizer.vocab_size))

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return the ids of each text, ending with `EOS`."""
        return [self._to_bytes(ids) for ids in self._tokenizer.encode_batch(texts)]

    def sample(self, texts: Sequence[str], rate: float, seed: int) -> list[bytes]:
        """Return the ids of each text in a random segmentation, ending with `EOS`."""
        batch = self._tokenizer.encode_batch(texts, sampling=rate, seed=seed)
        return [self._to_bytes(ids) for ids in batch]

    def _to_bytes(self, ids: Sequence[int]) -> bytes:
        return np.array(ids, self.dtype).tobytes()


class WordEncoder(RowEncoder):
    """Encodes with byte-pair encoding, several times faster, by caching the ids of each word.

    In byte-pair encoding no piece crosses a space, so a word has the same ids in every text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start with an empty cache."""
        super().__init__(tokenizer)
        self._ids_of: dict[str, bytes] = {}
        # Words that normalization removes; only the space in front of them remains.
        self._vanishing = {""}
        self._space = self._to_bytes(tokenizer.encode("  ")[:1])
        self._eos = self._to_bytes([EOS])

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return the ids of each text, ending with `EOS`."""
        if len(self._ids_of) > _CACHED_WORDS:
            self._ids_of.clear()
        split_texts = [text.split(" ") for text in texts]
        words = set(itertools.chain.from_iterable(split_texts))
        self._add_to_cache(words.difference(self._ids_of))
        return [self._join(words) for words in split_texts]

    def _join(self, words: Sequence[str]) -> bytes:
        if len(words) == 1 and words[0] in self._vanishing:
            return self._eos
        return b"".join(map(self._ids_of.__getitem__, words)) + self._eos

    def _add_to_cache(self, new_words: Iterable[str]) -> None:
        words = list(new_words)
        for word, ids in zip(words, self._tokenizer.encode_batch(words), strict=True):
            if ids == [EOS]:
                self._vanishing.add(word)
            self._ids_of[word] = self._to_bytes(ids[:-1]) or self._space


def _encoders(task: Task) -> tuple[RowEncoder, RowEncoder]:
    """Return the encoders of source and target."""
    if task.own:
        return RowEncoder(task.own[0]), RowEncoder(task.own[1])
    source, target = task.models
    return (
        _load_encoder(source, source.stat().st_mtime_ns, task.bpe),
        _load_encoder(target, target.stat().st_mtime_ns, task.bpe),
    )


@functools.cache
def _load_encoder(path: Path, modified: int, bpe: bool) -> RowEncoder:
    """Load an encoder, once a process; `modified` distinguishes two files with one name."""
    tokenizer = Tokenizer.load(path)
    return WordEncoder(tokenizer) if bpe else RowEncoder(tokenizer)


def _most_bytes(task: Task, encoder: RowEncoder) -> float:
    """Return how many bytes the ids of one side may take."""
    return task.max_tokens * encoder.dtype.itemsize if task.train else math.inf


def _shorter(sampled: Sequence[bytes], best: Sequence[bytes], limit: float) -> list[bytes]:
    """Return the sampled rows, with the best segmentation instead of those over the limit."""
    rows = []
    for sampled_row, best_row in zip(sampled, best, strict=True):
        rows.append(sampled_row if len(sampled_row) <= limit else best_row)
    return rows


def _ragged(name: str, rows: Sequence[bytes], dtype: np.dtype[Any]) -> dict[str, NDArray[Any]]:
    """Return rows as two arrays: their values one after the other, and their lengths."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows)) // dtype.itemsize
    return {f"{name}.values": np.frombuffer(b"".join(rows), dtype), f"{name}.lengths": lengths}
