"""Locks on folders: one process at a time trains in a run folder or writes to a work folder.

The operating system releases a lock when its process ends, even if it is killed.
"""

from __future__ import annotations

import fcntl
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import ConfigError, DataError

RUN_LOCK = ".lock"
_WORK_LOCK = "lock"
# `is_run_locked` takes the lock for a moment, so `lock_run` tries several times.
TRIES = 5
PAUSE_SECONDS = 0.05


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Create the run folder if necessary and lock it for training.

    A file system without locks, as some clusters have, keeps no other process out.
    """
    run.mkdir(parents=True, exist_ok=True)
    with (run / RUN_LOCK).open("a+") as file:
        for _ in range(TRIES):
            if _try_lock(file.fileno(), fcntl.LOCK_EX) is not False:
                break
            time.sleep(PAUSE_SECONDS)
        else:
            raise ConfigError(
                f"another process trains in {run}; wait until it has finished, or choose another "
                "folder for the run"
            )
        file.truncate(0)
        file.write(platform.node())
        file.flush()
        yield


def is_run_locked(run: Path) -> bool | None:
    """Return whether a process trains in the folder; None if that cannot be known.

    On a shared file system, locks of processes on other machines are not always visible.
    """
    try:
        with (run / RUN_LOCK).open() as file:
            locked = _try_lock(file.fileno(), fcntl.LOCK_SH)
            if locked is False:
                return True
            was_this_machine = file.read() == platform.node()
            return False if locked and was_this_machine else None
    except OSError:
        return None


@contextmanager
def lock_work_folder(work: Path, command: str) -> Iterator[None]:
    """Create a folder for unfinished work if necessary and lock it for this process.

    With the lock held, everything in the folder was left by a process that no longer runs. A file
    system without locks keeps no other process out.
    """
    work.mkdir(parents=True, exist_ok=True)
    with (work / _WORK_LOCK).open("a") as file:
        if _try_lock(file.fileno(), fcntl.LOCK_EX) is False:
            raise DataError(
                f"another transduce {command} is at work in {work}; wait for it to finish"
            )
        yield


def clear_work_folder(work: Path) -> None:
    """Remove everything but the lock from a work folder."""
    for path in work.iterdir():
        if path.name == _WORK_LOCK:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _try_lock(file: int, kind: int) -> bool | None:
    """Return whether the file could be locked; None on a file system without locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
