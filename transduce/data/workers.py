"""Many tasks over several processes, and a bar that a person can watch."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
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

from transduce.errors import ConfigError, DataError

Task = TypeVar("Task")
Result = TypeVar("Result")

_SECONDS = 10  # between lines where there is no terminal


def spread(
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int = 0
) -> Iterator[Result]:
    """The result of each task as it is finished, in any order; 0 workers stands for the number of cores, 1 for none."""
    _refuse_negative(workers)
    workers = min(workers or available_cores(), len(tasks))
    if workers <= 1:
        yield from map(work, tasks)
        return
    pool = worker_pool(workers)
    try:
        waiting: set[Future[Result]] = {pool.submit(work, task) for task in tasks}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool:
        raise DataError(
            "a worker process was killed, most likely for lack of memory; run the command again with fewer --workers: "
            "it goes on where it stopped (a script of your own needs: if __name__ == '__main__')"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Processes that end when this one does, however it ends."""
    _refuse_negative(workers)
    # Started afresh ("spawn"): a fork would copy the threads of libraries in whatever state they are.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _depend_on_the_parent)
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT}
    )  # inherited: Ctrl-C is not theirs while they start
    try:
        for _ in range(workers):
            pool.submit(os.getpid)  # starts one
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pool


def _refuse_negative(workers: int) -> None:
    if workers < 0:
        raise ConfigError(
            f"{workers} processes are asked for; expected at least 1, or 0 for one for each core"
        )


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A function that takes how many more are done: a bar on a terminal, a line every ten seconds elsewhere."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    of_all = f" of {total:,}" if total else ""
    with counted(
        Console(stderr=True), columns, lambda done: f"{title}: {done:,}{of_all}", title, total
    ) as advance:
        yield advance


@contextmanager
def counted(
    console: Console,
    columns: Sequence[ProgressColumn],
    line: Callable[[int], str],
    title: str = "",
    total: int | None = None,
) -> Iterator[Callable[[int], None]]:
    """The same with columns of one's own for the terminal, and a line for elsewhere."""
    if console.is_terminal:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda more: bar.advance(task, more)
        return
    done, said = 0, time.monotonic()

    def advance(more: int) -> None:
        nonlocal done, said
        done += more
        if time.monotonic() - said > _SECONDS:
            console.print(line(done), highlight=False)
            said = time.monotonic()

    yield advance


def _depend_on_the_parent() -> None:
    """Leave Ctrl-C to the parent, and do not wait for work that a killed one can never send."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
