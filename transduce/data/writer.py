"""Write a token store: append rows, force them to the disk, write the manifest last."""

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
from transduce.data.store import FORMAT, MANIFEST, OFFSETS, digest, token_type
from transduce.data.tokenizer import Tokenizer
from transduce.errors import DataError
from transduce.storage.disk import sync, sync_folder, whole_file


class RaggedWriter:
    """Appends rows to the two files of a ragged array, within a `with`; `entries` is then for the manifest."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._dtype = np.dtype(dtype)
        self._names = (f"{name}.values", f"{name}.offsets")
        self._files = [(folder / part).open("wb") for part in self._names]
        self._hashes = [hashlib.sha256(), hashlib.sha256()]
        self._end = 0
        self.entries: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> RaggedWriter:
        self._write(1, np.zeros(1, OFFSETS))
        return self

    def extend(self, values: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Append rows, given one after the other."""
        self._write(0, values.astype(self._dtype, copy=False))
        self._write(1, (self._end + np.cumsum(lengths)).astype(OFFSETS))
        self._end += len(values)

    def __exit__(self, *error: object) -> None:
        with self._files[0], self._files[1]:
            if error[0] is None:
                for name, file, digest in zip(self._names, self._files, self._hashes, strict=True):
                    self.entries[name] = {"bytes": file.tell(), "sha256": digest.hexdigest()}
                    sync(file)

    def _write(self, which: int, array: NDArray[Any]) -> None:
        data = np.ascontiguousarray(array).view(np.uint8).data
        self._files[which].write(data)
        self._hashes[which].update(data)


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """The last file of a store: from here on it counts as whole."""
    with (folder / MANIFEST).open("wb") as file:
        file.write(
            json.dumps(
                {**content, "sha256": digest(content)}, indent=1, ensure_ascii=False
            ).encode()
        )
        sync(file)
    sync_folder(folder)


def write_file(path: Path, content: bytes) -> None:
    """A small file, whole or not at all."""
    with whole_file(path) as file:
        file.write(content)


def assemble(
    folder: Path,
    data: DataConfig,
    inputs: Inputs,
    tokenizers: Mapping[str, Tokenizer],
    pieces: Mapping[str, Mapping[str, Sequence[Path]]],
    read: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    """Write the store into a folder that does not count as one before its manifest is there.

    Args:
        folder: Made anew.
        data: The settings the pieces were made with.
        inputs: What they were made from.
        tokenizers: By side; the target's alone if it is joint.
        pieces: By section and corpus, the finished pieces in order.
        read: By section and corpus, what cleaning counted: {"read": pairs, "kept": pairs, "dropped": {reason: pairs}}.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files: dict[str, dict[str, Any]] = {}
    for side, tokenizer in tokenizers.items():
        write_file(folder / f"{side}.model", tokenizer.to_bytes())
        files[f"{side}.model"] = {
            "bytes": len(tokenizer.to_bytes()),
            "sha256": tokenizer.fingerprint,
        }
    types = {
        side: token_type(tokenizers.get(side, tokenizers["target"]).vocab_size) for side in SIDES
    }
    sections: dict[str, dict[str, Any]] = {}
    for section, corpora in pieces.items():
        train = section == "train"
        variants = data.tokenizer.variants if train and data.tokenizer.sampling else 1
        kinds = types if train else types | {f"{side}.text": "u1" for side in SIDES}
        with ExitStack() as stack:
            writers = {
                kind: stack.enter_context(RaggedWriter(folder, f"{section}.{kind}", dtype))
                for kind, dtype in kinds.items()
            }
            sections[section] = _append_all(corpora, read[section], writers, variants)
        for writer in writers.values():
            files |= writer.entries
    if not any(about["pairs"] for about in sections["train"]["corpora"].values()):
        dropped = sum(about["kept"] for about in read["train"].values())
        raise DataError(
            f"no training pair is left: all {dropped:,} have more than {data.max_tokens} tokens on a side; "
            "raise data.max_tokens"
        )
    about = {
        "format": FORMAT,
        "fingerprint": inputs.fingerprint,
        "languages": [data.source_language, data.target_language],
        "joint": data.tokenizer.joint,
        "tokenizer": {side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()},
    }
    write_manifest(folder, about | {"sections": sections, "inputs": asdict(inputs), "files": files})


def _append_all(
    corpora: Mapping[str, Sequence[Path]],
    read: Mapping[str, Mapping[str, Any]],
    writers: Mapping[str, RaggedWriter],
    variants: int,
) -> dict[str, Any]:
    """Copy the pieces of a section into the store; what the manifest says of it."""
    about = {name: _Counted(read[name]) for name in corpora}
    for variant in range(variants):
        for name, paths in corpora.items():
            for path in paths:
                about[name].add(_append(path, writers, variant), variant)
    return {
        "corpora": {name: counted.counts for name, counted in about.items()},
        "variants": variants,
        "longest": max((counted.longest for counted in about.values()), default=0),
    }


class _Counted:
    """What the manifest says of a corpus."""

    def __init__(self, cleaned: Mapping[str, Any]) -> None:
        self.counts: dict[str, Any] = {
            "read": cleaned["read"],
            "dropped": dict(cleaned["dropped"]),
            "pairs": 0,
            "source_tokens": 0,
            "target_tokens": 0,
        }
        self.longest = 0

    def add(self, piece: Mapping[str, Any], variant: int) -> None:
        self.longest = max(self.longest, *(int(piece[side].max(initial=0)) for side in SIDES))
        if variant == 0:
            self.counts["pairs"] += len(piece["source"])
            for side in SIDES:
                self.counts[f"{side}_tokens"] += int(piece[side].sum())
            if piece["too_many_tokens"]:
                dropped = self.counts["dropped"]
                dropped["too-many-tokens"] = dropped.get("too-many-tokens", 0) + int(
                    piece["too_many_tokens"]
                )


def _append(path: Path, writers: Mapping[str, RaggedWriter], variant: int) -> dict[str, Any]:
    """Copy a piece into the store; its lengths."""
    with np.load(path, allow_pickle=False) as arrays:
        found: dict[str, Any] = {"too_many_tokens": arrays["too_many_tokens"]}
        for kind, writer in writers.items():
            name = kind if kind.endswith("text") else f"{kind}.{variant}"
            found[kind] = arrays[f"{name}.lengths"]
            writer.extend(arrays[f"{name}.values"], found[kind])
    return found
