"""What is written is on the disk: files and names that are forced there, and a file that appears only when whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO


def sync(file: IO[bytes]) -> None:
    """Force a written file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that gets its name when all of it is on disk. What a killed process left is written over."""
    if path.is_symlink() or (path.exists() and not path.is_file()):  # a link, device or pipe, which stays what it is
        with path.open("wb") as file:
            yield file
        return
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
            sync(file)
        unfinished.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say where
        raise
    finally:
        unfinished.unlink(missing_ok=True)
