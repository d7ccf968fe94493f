"""Write a token store: append rows, force them to the disk, and write the manifest last."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.config import DataConfig
from transduce.data.encode import SIDES
from transduce.data.inputs import Inputs
from transduce.data.store import FORMAT, MANIFEST, OFFSETS, token_type
from transduce.data.tokenizer import Tokenizer
from transduce.errors import DataError
from transduce.storage.disk import sync, sync_folder, whole_file
from transduce.storage.sealed_folder import sealed


def assemble(
    folder: Path,
    data: DataConfig,
    inputs: Inputs,
    tokenizers: Mapping[str, Tokenizer],
    pieces: Mapping[str, Mapping[str, Sequence[Path]]],
    cleaned: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    """Write a store into a folder, which counts as a store once its manifest exists.

    Args:
        folder: The folder to write. If it exists, it is replaced.
        data: The settings of the store.
        inputs: The files and settings that the store is made from.
        tokenizers: By side; only "target" if both sides share one.
        pieces: By section and corpus, the files of token ids, in order.
        cleaned: By section and corpus, the counts of cleaning:
            {"read": pairs, "kept": pairs, "added": pairs, "dropped": {rule: pairs}}.
    """
    # `files` collects the size and checksum of each file for the manifest.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files: dict[str, dict[str, Any]] = {}
    for side, tokenizer in tokenizers.items():
        model = tokenizer.to_bytes()
        write_file(folder / f"{side}.model", model)
        files[f"{side}.model"] = {"bytes": len(model), "sha256": tokenizer.fingerprint}

    # Every section has token ids; validation and test sets also keep their text.
    token_types = {}
    for side in SIDES:
        tokenizer = tokenizers.get(side, tokenizers["target"])
        token_types[side] = token_type(tokenizer.vocab_size)
    sections: dict[str, dict[str, Any]] = {}
    for section, corpora in pieces.items():
        train = section == "train"
        variants = data.tokenizer.variants if train and data.tokenizer.sampling else 1
        dtypes = dict(token_types)
        if not train:
            dtypes |= {f"{side}.text": "u1" for side in SIDES}
        with ExitStack() as stack:
            writers = {}
            for name, dtype in dtypes.items():
                writer = RaggedWriter(folder, f"{section}.{name}", dtype)
                writers[name] = stack.enter_context(writer)
            sections[section] = _append_section(corpora, cleaned[section], writers, variants)
        for writer in writers.values():
            files |= writer.entries

    if not any(counts["pairs"] for counts in sections["train"]["corpora"].values()):
        dropped = sum(record["kept"] for record in cleaned["train"].values())
        raise DataError(
            f"no training pair is left: all {dropped:,} have more than {data.max_tokens} tokens "
            "on a side; raise data.max_tokens"
        )

    manifest = {
        "format": FORMAT,
        "fingerprint": inputs.fingerprint,
        "languages": [data.source_language, data.target_language],
        "joint": data.tokenizer.joint,
        "tokenizer": {side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()},
        "sections": sections,
        "inputs": asdict(inputs),
        "files": files,
    }
    write_manifest(folder, manifest)


class RaggedWriter:
    """Appends rows to the two files of a ragged array.

    It is a context manager; after the block, `entries` has the files' entries for the manifest.
    """

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        """Create `NAME.values` and `NAME.offsets`."""
        self.entries: dict[str, dict[str, Any]] = {}
        self._end = 0  # values written so far
        self._values = _HashedFile(folder / f"{name}.values", np.dtype(dtype))
        self._offsets = _HashedFile(folder / f"{name}.offsets", OFFSETS)

    def __enter__(self) -> RaggedWriter:
        self._offsets.write(np.zeros(1, OFFSETS))
        return self

    def extend(self, values: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Append rows: their values one after the other, and their lengths."""
        self._values.write(values)
        self._offsets.write(self._end + np.cumsum(lengths))
        self._end += len(values)

    def __exit__(self, *error: object) -> None:
        succeeded = error[0] is None
        with self._values.file, self._offsets.file:
            if succeeded:
                self.entries |= self._values.finish()
                self.entries |= self._offsets.finish()


class _HashedFile:
    """A file of numbers of one type, hashed while it is written."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.file = path.open("wb")
        self._name = path.name
        self._dtype = dtype
        self._hash = hashlib.sha256()

    def write(self, array: NDArray[Any]) -> None:
        """Append numbers."""
        data = np.ascontiguousarray(array.astype(self._dtype, copy=False)).view(np.uint8).data
        self.file.write(data)
        self._hash.update(data)

    def finish(self) -> dict[str, dict[str, Any]]:
        """Force the file to the disk and return its entry for the manifest."""
        entry = {"bytes": self.file.tell(), "sha256": self._hash.hexdigest()}
        sync(self.file)
        return {self._name: entry}


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the last file of a store, which makes it complete."""
    with (folder / MANIFEST).open("wb") as file:
        file.write(json.dumps(sealed(content), indent=1, ensure_ascii=False).encode())
        sync(file)
    sync_folder(folder)


def write_file(path: Path, content: bytes) -> None:
    """Write a small file, which appears only when it is complete."""
    with whole_file(path) as file:
        file.write(content)


def _append_section(
    corpora: Mapping[str, Sequence[Path]],
    cleaned: Mapping[str, Mapping[str, Any]],
    writers: Mapping[str, RaggedWriter],
    variants: int,
) -> dict[str, Any]:
    """Copy the pieces of a section into the store, and return the section's manifest entry."""
    counts = {name: _CorpusCounts(cleaned[name]) for name in corpora}
    for variant in range(variants):
        for name, paths in corpora.items():
            for path in paths:
                lengths, too_many_tokens = _append_piece(path, writers, variant)
                counts[name].measure(lengths)
                if variant == 0:
                    counts[name].add(lengths, too_many_tokens)
    return {
        "corpora": {name: corpus.entry for name, corpus in counts.items()},
        "variants": variants,
        "longest": max((corpus.longest for corpus in counts.values()), default=0),
    }


def _append_piece(
    path: Path, writers: Mapping[str, RaggedWriter], variant: int
) -> tuple[dict[str, NDArray[Any]], int]:
    """Copy one piece into the store.

    Returns:
        The lengths of its rows, by array, and how many pairs had too many tokens.
    """
    lengths: dict[str, NDArray[Any]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for kind, writer in writers.items():
            name = kind if kind.endswith("text") else f"{kind}.{variant}"
            lengths[kind] = arrays[f"{name}.lengths"]
            writer.extend(arrays[f"{name}.values"], lengths[kind])
        return lengths, int(arrays["too_many_tokens"])


class _CorpusCounts:
    """The manifest entry of a corpus, while its pieces are added up."""

    def __init__(self, cleaned: Mapping[str, Any]) -> None:
        self.longest = 0
        self.entry: dict[str, Any] = {
            "read": cleaned["read"],
            "dropped": dict(cleaned["dropped"]),
            "pairs": 0,
            "source_tokens": 0,
            "target_tokens": 0,
        }

    def measure(self, lengths: Mapping[str, NDArray[Any]]) -> None:
        """Update the length of the longest sentence."""
        for side in SIDES:
            self.longest = max(self.longest, int(lengths[side].max(initial=0)))

    def add(self, lengths: Mapping[str, NDArray[Any]], too_many_tokens: int) -> None:
        """Count the pairs of a piece."""
        self.entry["pairs"] += len(lengths["source"])
        for side in SIDES:
            self.entry[f"{side}_tokens"] += int(lengths[side].sum())
        if too_many_tokens:
            dropped = self.entry["dropped"]
            dropped["too-many-tokens"] = dropped.get("too-many-tokens", 0) + too_many_tokens
