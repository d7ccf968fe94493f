"""The lock file of a corpus folder: what every download was when it was first used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from transduce.data.text_folder import whole_file
from transduce.errors import DataError

LOCK = "transduce-data.lock"


class Lock:
    """The size and SHA-256 of every file of a folder when it was first used; a later one must be the same."""

    def __init__(self, folder: Path, *, accept_changes: bool = False) -> None:
        self.path = folder / LOCK
        self.accept_changes = accept_changes
        self.files: dict[str, dict[str, Any]] = {}
        try:
            if self.path.exists():
                files = json.loads(self.path.read_text(encoding="utf-8"))["files"]
                self.files = {
                    name: {**file, "bytes": int(file["bytes"]), "sha256": file["sha256"]}
                    for name, file in files.items()
                }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise DataError(
                f"{self.path} is not a lock file; restore it, or delete it to trust the files anew"
            ) from None

    def expected_bytes(self, name: str) -> int | None:
        """The size that a file must have, where one was recorded."""
        return (
            None
            if self.accept_changes or name not in self.files
            else int(self.files[name]["bytes"])
        )

    def check(self, name: str, path: Path, address: str) -> None:
        """Refuse a file that differs from the recorded one; take note of a new one (`save` keeps the note)."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        found = {"address": address, "bytes": path.stat().st_size, "sha256": sha256}
        locked = self.files.get(name, found)
        if not self.accept_changes and (locked["bytes"], locked["sha256"]) != (
            found["bytes"],
            found["sha256"],
        ):
            raise DataError(
                f"{path} has {found['bytes']:,} bytes and SHA-256 {sha256[:16]}..., but {self.path.name} expects "
                f"{locked['bytes']:,} and {locked['sha256'][:16]}...; delete it to fetch it again, or pass "
                "--accept-changes if a new edition is wanted"
            )
        self.files[name] = found

    def save(self) -> None:
        """Write the lock file."""
        with whole_file(self.path) as file:
            file.write(json.dumps({"files": self.files}, indent=2, sort_keys=True).encode() + b"\n")
