"""Run tasks in several processes, and show their progress."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from transduce.cores import available_cores
from transduce.errors import ConfigError, DataError

Task = TypeVar("Task")
Result = TypeVar("Result")

_SECONDS = 10  # between lines of progress, where there is no terminal


def spread(
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int = 0
) -> Iterator[Result]:
    """Yield the result of each task when it is finished, in any order.

    0 workers means one process for each core; 1 means that this process does the work.
    """
    _refuse_negative(workers)
    workers = min(workers or available_cores(), len(tasks))
    if workers <= 1:
        yield from map(work, tasks)
        return
    with worker_pool(workers) as pool:
        waiting: set[Future[Result]] = {pool.submit(work, task) for task in tasks}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes for a block. They end with this process, even if it is killed.

    Ctrl-C ends them in the middle of their tasks, other errors when these are done. A DataError
    says that a worker was killed.
    """
    _refuse_negative(workers)
    _hide_standard_input()
    # "spawn" and not "fork", which would copy the locks that other threads hold.
    others = active_children()
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _depend_on_the_parent)
    try:
        _start_processes(pool, workers)
        yield pool
    except BrokenProcessPool:
        raise DataError(
            "a worker process was killed, most likely for lack of memory; run the command again "
            "with fewer processes (a Python script also needs: if __name__ == '__main__')"
        ) from None
    except KeyboardInterrupt:
        # A task may take minutes.
        for process in {*active_children()} - {*others}:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_processes(pool: ProcessPoolExecutor, workers: int) -> None:
    """Start all processes of a pool while Ctrl-C is blocked, which they inherit."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(workers):
            pool.submit(os.getpid)  # the first task of a process starts it
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hide_standard_input() -> None:
    """Keep workers from looking for a script that came through standard input.

    A worker runs the file of the main module again; `python - < script.py` has no such file.
    """
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) == "<stdin>":
        del main.__file__


def _refuse_negative(workers: int) -> None:
    if workers < 0:
        raise ConfigError(
            f"the number of processes is {workers}; expected at least 1, or 0 to use every core"
        )


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show progress: a bar on a terminal, or a line every ten seconds.

    The value of the `with` statement is a function to call with the number of items just done.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    of_total = f" of {total:,}" if total else ""

    def line(done: int) -> str:
        return f"{title}: {done:,}{of_total}"

    with counted(Console(stderr=True), columns, line, title, total) as advance:
        yield advance


@contextmanager
def counted(
    console: Console,
    columns: Sequence[ProgressColumn],
    line: Callable[[int], str],
    title: str = "",
    total: int | None = None,
) -> Iterator[Callable[[int], None]]:
    """Show progress with these columns on a terminal, or with a line made by `line`."""
    if console.is_terminal:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda more: bar.advance(task, more)
        return
    done = 0
    last_line = time.monotonic()

    def advance(more: int) -> None:
        nonlocal done, last_line
        done += more
        if time.monotonic() - last_line > _SECONDS:
            console.print(line(done), highlight=False)
            last_line = time.monotonic()

    yield advance


def _depend_on_the_parent() -> None:
    """Ignore Ctrl-C, which the parent handles, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
