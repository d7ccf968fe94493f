"""Start `transduce train` in forked processes that have imported everything, within milliseconds.

Only the tests about torchrun itself use torchrun, whose start takes seconds.
"""

import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path

import torch

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([
    "tests.training.test_ranks", "transduce.cli.commands", "transduce.training.train",
    "torch.utils.tensorboard",
    "sacrebleu.metrics.bleu", "sacrebleu.metrics.ter", "torch.distributed.tensor", "torch._dynamo", "pytest",
])  # fmt: skip


def start(command, log, size=1, change=None):
    """Start `transduce train ...` on `size` ranks, each of which writes its output to its own log.

    `change(rank)` is called in each process first.
    """
    world = (
        {"WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
        if size > 1
        else {}
    )
    processes = []
    for rank in range(size):
        place = {**world, "RANK": rank, "LOCAL_RANK": rank} if size > 1 else {}
        values = {name: str(value) for name, value in place.items()}
        processes.append(FORKS.Process(target=_be, args=(command, values, f"{log}.{rank}", change)))
        processes[-1].start()
    return processes


def free_port():
    """Return a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def finish(processes, seconds=60):
    """Wait for all processes; return their exit statuses."""
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(end - time.monotonic(), 0))
        if process.exitcode is None:
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


def train(command, log, size=1, change=None, status=0, seconds=60):
    """Train, check the exit status of every rank, and return their outputs."""
    statuses = finish(start(command, log, size, change), seconds)
    assert statuses == [status] * size, "\n".join([f"{statuses}", *read_logs(log, size)])
    return read_logs(log, size)


def read_logs(log, size=1):
    """Return the output of each rank."""
    return [Path(f"{log}.{rank}").read_text(encoding="utf-8") for rank in range(size)]


def _be(command, environment, log, change):
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)
    if change is not None:
        change(int(environment.get("RANK", 0)))
    from transduce.cli.commands import run

    sys.exit(run(command))
