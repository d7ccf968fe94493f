"""What is written is on the disk: files and names that are forced there, and a file that appears only when whole."""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """A file to write that gets its name when all of it is on disk, with the mode of the file that had it before.

    Each writer has an unfinished file of its own, locked while it lives; what a killed one left is removed.
    """
    # A link, device or pipe, which stays what it is.
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with path.open("wb") as file:
            yield file
        return
    for left in path.parent.glob(f".{glob.escape(path.name)}.unfinished*"):
        _remove_unless_held(left)
    unfinished = path.with_name(f".{path.name}.unfinished-{secrets.token_hex(4)}")
    try:
        with _held(unfinished) as file:
            if path.exists():
                unfinished.chmod(stat.S_IMODE(path.stat().st_mode))
            yield file
            sync(file)
            unfinished.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say where
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def _held(path: Path) -> BinaryIO:
    """A new file, locked while it is open where the file system can."""
    while True:
        file = path.open("xb")
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # somebody took it for a leftover before it was locked


def _remove_unless_held(path: Path) -> None:
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
