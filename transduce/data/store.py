"""Read a token store: token ids on disk, written once and memory-mapped.

A store is a folder. Each of its ragged arrays is two plain files of little-endian numbers,
`NAME.values` and `NAME.offsets`. `manifest.json` is written last; it has the inputs of the store
and the size and SHA-256 of every file. Opening a store compares the sizes, which takes the same
time for any store; `Store.verify` compares the contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.tokenizer import Tokenizer
from transduce.errors import DataError
from transduce.storage.sealed_folder import file_sha256, unsealed

FORMAT = 1  # increased whenever the same inputs would give another store
MANIFEST = "manifest.json"
SECTIONS = ("train", "validation", "test")
OFFSETS = np.dtype("<i8")


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths: row i is values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the length of each of these rows."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values of these rows, one after the other."""
        lengths = self.lengths(rows)
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(rows) else 0
        # For each row, the distance from its place in the result to its place in `values`.
        shift = self.offsets[rows] - (ends - lengths)
        places = np.repeat(shift, lengths) + np.arange(total)
        return np.asarray(self.values[places])


@dataclass(frozen=True)
class Section:
    """The pairs of `train`, `validation` or `test`, one corpus after the other."""

    source: Ragged
    target: Ragged
    corpora: Mapping[str, range]  # by name: the rows of its pairs
    variants: int  # with sampling, how many segmentations of the whole section there are
    longest: int  # the tokens of the longest sentence on either side
    _texts: tuple[Ragged, Ragged] | None

    @property
    def pairs(self) -> int:
        """The number of pairs, not counting variants."""
        return len(self.source) // self.variants

    def texts(self, corpus: str) -> tuple[list[str], list[str]]:
        """Return the sources and targets of a validation or test set, as text, in order."""
        if self._texts is None:
            raise DataError(
                "the text of training pairs is not kept in a store; read the corpus instead"
            )
        if corpus not in self.corpora:
            raise DataError(
                f"the store has no set called {corpus!r}; known: {', '.join(self.corpora)}"
            )
        rows = self.corpora[corpus]
        source_texts, target_texts = self._texts
        sources = [bytes(source_texts[row]).decode() for row in rows]
        targets = [bytes(target_texts[row]).decode() for row in rows]
        return sources, targets


class Store:
    """An opened token store. Its sections `train`, `validation` and `test` may be empty."""

    def __init__(self, path: Path, tokenizers: Mapping[str, Tokenizer] | None = None) -> None:
        """Open a store and compare the sizes of its files with the manifest.

        Args:
            path: The folder of the store.
            tokenizers: The user's own tokenizers, by side, if the store was made with them.
        """
        self.path = path
        self._given = tokenizers or {}
        self.manifest = read_manifest(path)
        for name, entry in self.manifest["files"].items():
            file = path / name
            size = file.stat().st_size if file.is_file() else None
            if size != entry["bytes"]:
                found = "is missing" if size is None else f"has {size:,} bytes"
                problem = f"{name} {found}; expected {entry['bytes']:,} bytes"
                raise DataError(_damaged(path, problem))

    def verify(self) -> None:
        """Read every file and compare its checksum with the manifest."""
        for name, entry in self.manifest["files"].items():
            if file_sha256(self.path / name) != entry["sha256"]:
                raise DataError(
                    _damaged(self.path, f"the content of {name} differs from the manifest")
                )

    @property
    def fingerprint(self) -> str:
        """The hash of the inputs: two stores of the same text and settings have the same."""
        return str(self.manifest["fingerprint"])

    @cached_property
    def source_tokenizer(self) -> Tokenizer:
        """The source tokenizer; the same object as the target's if the vocabulary is joint."""
        return self.target_tokenizer if self.manifest["joint"] else self._tokenizer("source")

    @cached_property
    def target_tokenizer(self) -> Tokenizer:
        """The target tokenizer."""
        return self._tokenizer("target")

    @property
    def tokenizer_files(self) -> dict[str, bytes]:
        """The tokenizers as files, by the names that a bundle gives them."""
        if self.source_tokenizer is self.target_tokenizer:
            return {"tokenizer.model": self.target_tokenizer.to_bytes()}
        return {
            "source.model": self.source_tokenizer.to_bytes(),
            "target.model": self.target_tokenizer.to_bytes(),
        }

    @cached_property
    def train(self) -> Section:
        """The training pairs, in the random order in which they were written."""
        return self._section("train")

    @cached_property
    def validation(self) -> Section:
        """The validation sets, in the order of their files."""
        return self._section("validation")

    @cached_property
    def test(self) -> Section:
        """The test sets, in the order of their files."""
        return self._section("test")

    def _tokenizer(self, side: str) -> Tokenizer:
        tokenizer = self._given.get(side) or Tokenizer.load(self.path / f"{side}.model")
        if tokenizer.fingerprint != self.manifest["files"][f"{side}.model"]["sha256"]:
            raise DataError(
                _damaged(self.path, f"the content of {side}.model differs from the manifest")
            )
        return tokenizer

    def _section(self, name: str) -> Section:
        entry = self.manifest["sections"][name]
        corpora = {}
        start = 0
        for corpus, counts in entry["corpora"].items():
            stop = start + counts["pairs"]
            corpora[corpus] = range(start, stop)
            start = stop
        texts = None
        if name != "train":
            texts = (
                self._ragged(f"{name}.source.text", "u1"),
                self._ragged(f"{name}.target.text", "u1"),
            )
        return Section(
            source=self._ragged(f"{name}.source", token_type(self.source_tokenizer.vocab_size)),
            target=self._ragged(f"{name}.target", token_type(self.target_tokenizer.vocab_size)),
            corpora=corpora,
            variants=entry["variants"],
            longest=entry["longest"],
            _texts=texts,
        )

    def _ragged(self, name: str, dtype: str) -> Ragged:
        values = _mapped(self.path / f"{name}.values", np.dtype(dtype))
        offsets = _mapped(self.path / f"{name}.offsets", OFFSETS)
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(values):
            raise DataError(_damaged(self.path, f"{name}.offsets does not match {name}.values"))
        return Ragged(values, offsets)


def token_type(vocab_size: int) -> str:
    """Return the smallest type that holds every id of a vocabulary."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a store, without its own checksum, once that is verified."""
    try:
        content = unsealed((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{path} is not a token store: it has no {MANIFEST}; make one with transduce prepare"
        ) from None
    except (ValueError, OSError) as error:
        raise DataError(_damaged(path, f"{MANIFEST} cannot be read ({error})")) from None
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path} is a token store of format {content.get('format')}, but this version of "
            f"transduce reads format {FORMAT}; run transduce prepare again"
        )
    return content


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    # The subclass `np.memmap` is slow to index.
    return np.memmap(path, dtype, mode="r").view(np.ndarray)


def _damaged(path: Path, problem: str) -> str:
    return (
        f"the token store {path} is damaged: {problem}; delete it and run transduce prepare again"
    )
