"""Writing a token store: appended to, forced to the disk, the manifest last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.store import MANIFEST, OFFSETS, digest
from transduce.disk import sync, sync_folder, whole_file


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
        file.write(json.dumps({**content, "sha256": digest(content)}, indent=1, ensure_ascii=False).encode())
        sync(file)
    sync_folder(folder)


def write_file(path: Path, content: bytes) -> None:
    """A small file, whole or not at all."""
    with whole_file(path) as file:
        file.write(content)
