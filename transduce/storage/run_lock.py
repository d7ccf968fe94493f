"""The lock of a run's folder: one process at a time trains there, and others can see whether it does."""

from __future__ import annotations

import fcntl
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import ConfigError

LOCK = ".lock"
TRIES, PAUSE = 5, 0.05  # who looks whether somebody trains has the lock for a moment


@contextmanager
def held(run: Path) -> Iterator[None]:
    """One process at a time trains in a folder. The lock is given back when the process ends, however it ends."""
    run.mkdir(parents=True, exist_ok=True)
    with (run / LOCK).open("a+") as file:
        for _ in range(TRIES):
            if _lock(file.fileno(), fcntl.LOCK_EX) is not False:
                break
            time.sleep(PAUSE)
        else:
            raise ConfigError(
                f"another process trains in {run}; wait for it, or choose another folder with --run"
            )
        file.truncate(0)
        file.write(platform.node())
        file.flush()
        yield


def is_held(run: Path) -> bool | None:
    """Whether a process trains in the folder; None where that cannot be known, as of one on another machine.

    Not every file system that machines share tells them of each other's locks.
    """
    try:
        with (run / LOCK).open() as file:
            locked = _lock(file.fileno(), fcntl.LOCK_SH)
            if locked is False:
                return True
            return False if locked and file.read() == platform.node() else None
    except OSError:
        return None


def _lock(file: int, kind: int) -> bool | None:
    """Whether it could be had; None on a file system without locks, as some clusters have: it keeps nobody out."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
