"""Durable writes: files and names forced to the disk, and files that appear only when complete."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from transduce.errors import ConfigError


def describe_failure(error: OSError) -> str:
    """Return the reason for a failed write, in words that tell a limit from a full disk."""
    if error.errno == errno.EFBIG:
        return "the file size limit is reached, see ulimit -f"
    return error.strerror or str(error)


def check_writable(folder: Path, remedy: str) -> None:
    """Refuse a folder that cannot be written, before any work; it may not exist yet."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{folder} cannot be written, because {nearest} is not a writable folder; {remedy}"
        )


def sync(file: IO[bytes]) -> None:
    """Force a written file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force the names of a folder's files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write that gets its name once all of it is on the disk.

    If the block raises, an existing file stays as it was. The new file keeps the mode of the old
    one. Links, devices and pipes are written directly. Concurrent writers do not disturb each
    other, and unfinished files of killed writers are removed.
    """
    unfinished = path.parent / f".{path.name}.unfinished-{secrets.token_hex(4)}"
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            with path.open("wb") as file:
                yield file
            return

        for leftover in path.parent.glob(f".{glob.escape(path.name)}.unfinished*"):
            _remove_unless_locked(leftover)
        with _create_locked(unfinished) as file:
            if path.exists():
                unfinished.chmod(stat.S_IMODE(path.stat().st_mode))
            yield file
            sync(file)
            unfinished.replace(path)
    except OSError as error:
        # The error of a full disk does not name a file, and nobody knows the unfinished one.
        if error.filename in (None, str(unfinished)):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # a second error would hide the first
            unfinished.unlink()


def _create_locked(path: Path) -> BinaryIO:
    """Create a file that stays locked while it is open, if the file system has locks."""
    while True:
        file = path.open("xb")
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        # Another writer removed it as a leftover before it was locked.
        file.close()


def _remove_unless_locked(path: Path) -> None:
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
