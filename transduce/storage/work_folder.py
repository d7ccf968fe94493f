"""A folder of unfinished work: one process at a time holds it, so what another left there is nobody's any more."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import DataError

_LOCK = "lock"


@contextmanager
def alone_in(work: Path, command: str) -> Iterator[None]:
    """Make the folder, or find it, and hold it; the system lets go of it when the process ends, however it ends."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"another transduce {command} is at work in {work}; wait for it to finish"
            ) from None
        yield


def clear(work: Path) -> None:
    """Throw away what was left there."""
    for path in work.iterdir():
        if path.name != _LOCK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
