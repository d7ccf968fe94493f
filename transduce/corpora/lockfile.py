"""The lock file of a corpus folder, which records every download when it is first used.

It also tells such a folder from one with other text, which is never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transduce.data.text_folder import whole_file
from transduce.errors import DataError
from transduce.storage.sealed_folder import file_sha256

LOCK = "transduce-data.lock"


class Lock:
    """The size and SHA-256 of every file when it was first used; later it must be the same."""

    def __init__(self, folder: Path, *, accept_changes: bool = False) -> None:
        """Read the lock file of a folder, if it has one.

        Args:
            folder: The folder of the corpus.
            accept_changes: Whether files that differ from the lock file replace their entries.
        """
        self.path = folder / LOCK
        self.accept_changes = accept_changes
        self.files: dict[str, dict[str, Any]] = {}
        try:
            if self.path.exists():
                files = json.loads(self.path.read_text(encoding="utf-8"))["files"]
                for name, file in files.items():
                    size = int(file["bytes"])
                    self.files[name] = {**file, "bytes": size, "sha256": file["sha256"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise DataError(
                f"{self.path} is not a lock file; restore it, or delete it to trust the files as "
                "they are"
            ) from None

    def claim(self, names: Iterable[str]) -> None:
        """Write the lock file before these files are written, or refuse those of somebody else.

        A folder that has a lock file already was filled by an earlier call.
        """
        for name in names:
            path = self.path.with_name(name)
            if path.exists() and not self.path.exists():
                raise DataError(
                    f"{path} exists already and would be overwritten; choose another folder, or "
                    "remove it"
                )
        self.save()

    def expected_bytes(self, name: str) -> int | None:
        """Return the size that a file must have, or None if any size is accepted."""
        if self.accept_changes or name not in self.files:
            return None
        return int(self.files[name]["bytes"])

    def check(self, name: str, path: Path, address: str) -> None:
        """Raise an error if a file differs from its entry, and add an entry for a new one.

        `save` writes the entries.
        """
        sha256 = file_sha256(path)
        found = {"address": address, "bytes": path.stat().st_size, "sha256": sha256}
        locked = self.files.get(name, found)
        unchanged = locked["bytes"] == found["bytes"] and locked["sha256"] == found["sha256"]
        if not unchanged and not self.accept_changes:
            raise DataError(
                f"{path} has {found['bytes']:,} bytes and SHA-256 {sha256[:16]}..., but "
                f"{self.path.name} expects {locked['bytes']:,} and {locked['sha256'][:16]}...; "
                "delete it to download it again, or pass --accept-changes to use the new edition"
            )
        self.files[name] = found

    def save(self) -> None:
        """Write the lock file."""
        with whole_file(self.path) as file:
            file.write(json.dumps({"files": self.files}, indent=2, sort_keys=True).encode() + b"\n")
