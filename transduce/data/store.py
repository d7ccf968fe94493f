"""Token ids on disk: written once, memory-mapped, with a manifest that says what they were made from.

A store is a folder. Each of its ragged arrays is two plain files of little-endian numbers, `NAME.values` and
`NAME.offsets`; `manifest.json` holds every file's size and SHA-256 and is written last. Opening costs the same
whatever the size: sizes are compared then, contents by `Store.verify`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.tokenizer import Tokenizer
from transduce.errors import DataError

FORMAT = 1  # raised whenever the same inputs would give another store
MANIFEST = "manifest.json"
SECTIONS = ("train", "validation", "test")
OFFSETS = np.dtype("<i8")


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, one after the other: row i is values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The length of each of these rows."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """These rows, one after the other."""
        lengths = self.lengths(rows)
        ends = np.cumsum(lengths)
        # From a place in the result to its place in `values`.
        shift = self.offsets[rows] - (ends - lengths)
        total = int(ends[-1]) if len(rows) else 0
        return np.asarray(self.values[np.repeat(shift, lengths) + np.arange(total)])


@dataclass(frozen=True)
class Section:
    """The pairs of `train`, `validation` or `test`: corpora one after the other, each in an order of its own."""

    source: Ragged
    target: Ragged
    corpora: Mapping[str, range]  # by name: its pairs
    variants: int  # how often the section follows itself, each time segmented anew (sampling)
    longest: int  # tokens of the longest sentence of either side
    _texts: tuple[Ragged, Ragged] | None

    @property
    def pairs(self) -> int:
        """Pairs, each counted once."""
        return len(self.source) // self.variants

    def texts(self, corpus: str) -> tuple[list[str], list[str]]:
        """The sources and the targets of a validation or test set as they were before tokenization, in order."""
        if self._texts is None:
            raise DataError(
                "the text of training pairs is not kept in a store; read the corpus itself"
            )
        if corpus not in self.corpora:
            raise DataError(
                f"the store has no set called {corpus!r}; known: {', '.join(self.corpora)}"
            )
        rows = self.corpora[corpus]
        source, target = ([bytes(side[row]).decode() for row in rows] for side in self._texts)
        return source, target


class Store:
    """An opened token store. `train`, `validation` and `test` are its sections; an absent one has no pairs."""

    def __init__(self, path: Path, tokenizers: Mapping[str, Tokenizer] | None = None) -> None:
        """`tokenizers` are the user's own, by side, where the store was made with such."""
        self.path, self._given = path, tokenizers or {}
        self.manifest = read_manifest(path)
        for name, entry in self.manifest["files"].items():
            size = (path / name).stat().st_size if (path / name).is_file() else None
            if size != entry["bytes"]:
                found = "is missing" if size is None else f"has {size:,} bytes"
                raise DataError(
                    _damaged(path, f"{name} {found}; expected {entry['bytes']:,} bytes")
                )

    def verify(self) -> None:
        """Read everything and compare it with the manifest: a single flipped bit is found."""
        for name, entry in self.manifest["files"].items():
            if sha256(self.path / name) != entry["sha256"]:
                raise DataError(
                    _damaged(self.path, f"the content of {name} differs from the manifest")
                )

    @property
    def fingerprint(self) -> str:
        """Of the inputs: equal for two stores made from the same text with the same settings."""
        return str(self.manifest["fingerprint"])

    @cached_property
    def source_tokenizer(self) -> Tokenizer:
        """Of the source side; the same object as the target's if the vocabulary is joint."""
        return self.target_tokenizer if self.manifest["joint"] else self._tokenizer("source")

    @cached_property
    def target_tokenizer(self) -> Tokenizer:
        """Of the target side."""
        return self._tokenizer("target")

    @property
    def tokenizer_files(self) -> dict[str, bytes]:
        """As a bundle names them."""
        if self.source_tokenizer is self.target_tokenizer:
            return {"tokenizer.model": self.target_tokenizer.to_bytes()}
        return {
            "source.model": self.source_tokenizer.to_bytes(),
            "target.model": self.target_tokenizer.to_bytes(),
        }

    @cached_property
    def train(self) -> Section:
        """What the model learns from, shuffled once and for all."""
        return self._section("train")

    @cached_property
    def validation(self) -> Section:
        """What training is watched on, in the order of the files."""
        return self._section("validation")

    @cached_property
    def test(self) -> Section:
        """What the finished model is scored on, in the order of the files."""
        return self._section("test")

    def _tokenizer(self, side: str) -> Tokenizer:
        tokenizer = self._given.get(side) or Tokenizer.load(self.path / f"{side}.model")
        if tokenizer.fingerprint != self.manifest["files"][f"{side}.model"]["sha256"]:
            raise DataError(
                _damaged(self.path, f"the content of {side}.model differs from the manifest")
            )
        return tokenizer

    def _section(self, name: str) -> Section:
        about = self.manifest["sections"][name]
        corpora, start = {}, 0
        for corpus, counts in about["corpora"].items():
            corpora[corpus] = range(start, start := start + counts["pairs"])
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
            variants=about["variants"],
            longest=about["longest"],
            _texts=texts,
        )

    def _ragged(self, name: str, dtype: str) -> Ragged:
        values = _mapped(self.path / f"{name}.values", np.dtype(dtype))
        offsets = _mapped(self.path / f"{name}.offsets", OFFSETS)
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(values):
            raise DataError(_damaged(self.path, f"{name}.offsets does not fit {name}.values"))
        return Ragged(values, offsets)


def token_type(vocab_size: int) -> str:
    """The smallest type that holds every id."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def read_manifest(path: Path) -> dict[str, Any]:
    """What a store says of itself; refused if it is not one, of another format, or damaged."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        content = {key: value for key, value in manifest.items() if key != "sha256"}
        whole = manifest.get("sha256") == digest(content)
    except FileNotFoundError:
        raise DataError(
            f"{path} is not a token store: it has no {MANIFEST}; make one with transduce prepare"
        ) from None
    except (ValueError, AttributeError, OSError) as error:
        raise DataError(_damaged(path, f"{MANIFEST} cannot be read ({error})")) from None
    if content.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {content.get('format')}; expected {FORMAT}: run transduce prepare again"
        )
    if not whole:
        raise DataError(_damaged(path, f"{MANIFEST} differs from its own checksum"))
    return content


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Mapping[str, Any]) -> str:
    """Of a manifest's content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # nothing to map
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)  # the subclass is slow to index


def _damaged(path: Path, how: str) -> str:
    return f"the token store {path} is damaged: {how}; delete it and run transduce prepare again"
