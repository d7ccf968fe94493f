"""Ranks and devices, with PyTorch's DDP and FSDP2 applied to the learner from outside.

A single process is a world of size 1.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from transduce.errors import ConfigError, RankError, TransduceError

Sharding = Literal["ddp", "fsdp"]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class World:
    """This process among all processes of a training."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the only one that prints and writes files."""
        return self.rank == 0

    def alone(self) -> World:
        """Return a world of this process only, for work that rank 0 does by itself."""
        return World(0, 1, self.device)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def max(self, number: int) -> int:
        """Return the largest of the numbers that the ranks pass."""
        return _max_over_ranks(number) if self.size > 1 else number

    def agrees(self, number: int) -> bool:
        """Return whether all ranks pass the same number."""
        # The largest and the smallest number are the same.
        return self.max(number) == -self.max(-number)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true on any rank."""
        return self.max(flag) > 0

    def share(self, items: Sequence[T], work: Callable[[Sequence[T]], list[R]]) -> list[R]:
        """Split the work on a list between ranks; return all results, in order, on every rank."""
        own_results = work(items[self.rank :: self.size])
        if self.size == 1:
            return own_results
        # Rank r has done items r, r + size, r + 2 * size, ...
        by_rank: list[Any] = [None] * self.size
        dist.all_gather_object(by_rank, own_results)
        return [by_rank[index % self.size][index // self.size] for index in range(len(items))]

    @contextmanager
    def naming_lost_ranks(self) -> Iterator[None]:
        """Turn a communication error into a one-line `RankError`: another rank has ended."""
        try:
            yield
        except RuntimeError as error:
            # gloo raises plain RuntimeErrors.
            if self.size == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            raise RankError(
                f"rank {self.rank} lost the connection to another rank, which ended first; "
                "look for the error message of that rank"
            ) from error

    def do_on_main(self, work: Callable[[], None]) -> None:
        """Do work on rank 0 while the others wait: preparing a corpus may take hours.

        If it fails, all ranks end, and only rank 0 says why.
        """
        error: BaseException | None = None
        if self.is_main:
            try:
                work()
            except BaseException as failure:
                error = failure
        if self.size > 1:
            has_failed = torch.tensor(int(error is not None))
            group = dist.new_group(backend="gloo", timeout=timedelta(days=7))
            dist.broadcast(has_failed, 0, group)
            if has_failed and error is None:
                error = RankError(f"rank {self.rank} ends, because rank 0 has failed")
                error.is_printed_elsewhere = True
        if error is not None:
            raise error


def _read_environment() -> tuple[int, int]:
    """Return the number of processes and the rank on this machine, as torchrun has set them."""
    # Read the numbers that are set.
    numbers: dict[str, int] = {}
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        text = os.environ.get(name)
        if text is None:
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise ConfigError(
                f"the environment variable {name} is {text!r}; expected a number, which torchrun "
                f"sets: unset {name}, or start with torchrun"
            )
        numbers[name] = int(text)

    # With several processes, each must also know its rank, and where they meet.
    size = numbers.get("WORLD_SIZE", 1)
    if size > 1:
        needed = ("RANK", "MASTER_ADDR", "MASTER_PORT")
        missing = [name for name in needed if name not in os.environ]
        if missing:
            raise ConfigError(
                f"WORLD_SIZE is {size}, so {', '.join(missing)} must be set too; start with "
                "torchrun, or unset WORLD_SIZE"
            )
        if numbers["RANK"] >= size:
            raise ConfigError(
                f"RANK is {numbers['RANK']}, but WORLD_SIZE is {size}; expected a rank from 0 to "
                f"{size - 1}: start with torchrun, or unset WORLD_SIZE"
            )
        port = os.environ["MASTER_PORT"]
        if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 2**16:
            raise ConfigError(
                f"the environment variable MASTER_PORT is {port!r}; expected a port from 1 to "
                "65535, which torchrun sets: start with torchrun, or unset WORLD_SIZE"
            )
    return max(size, 1), numbers.get("LOCAL_RANK", 0)


class _Failures:
    """What the ranks tell each other when they fail, so that each error is printed once."""

    def __init__(self, world: World, store: Store) -> None:
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = PrefixStore(f"failures-{attempt}", store)
        self._world = world

    def is_printed_elsewhere(self, error: TransduceError) -> bool:
        """Return whether another rank prints this error, or the one that caused it."""
        try:
            if isinstance(error, RankError):
                return self._store.check(["error"])
            self._store.set("error", "")
            key = hashlib.sha256(str(error).encode()).hexdigest()
            return self._store.add(key, 1) > 1
        except RuntimeError:  # the rank that keeps the store has ended
            return False

    def wait(self) -> None:
        """Keep the store for a moment, if this process has it, until every rank has asked."""
        deadline = time.monotonic() + 2
        with suppress(RuntimeError):
            asked = self._store.add("asked", 1)
            while self._world.is_main and asked < self._world.size and time.monotonic() < deadline:
                time.sleep(0.01)
                asked = self._store.add("asked", 0)


@contextmanager
def world(device: str | None = None) -> Iterator[World]:
    """Join the processes that torchrun started, if it did, and leave them at the end."""
    # Choose the device of this process.
    size, local_rank = _read_environment()
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    own_device = torch.device(kind)
    if kind == "cuda":
        own_device = torch.device(kind, local_rank)
        torch.cuda.set_device(own_device)

    # Join the process group.
    rank = 0
    store = None
    if size > 1:
        store, rank, _ = next(rendezvous("env://"))
        if int(os.environ.get("LOCAL_WORLD_SIZE", "0")) == size:
            # torchrun keeps its store across restarts, with the addresses of dead processes in it.
            # On a single machine its restart count, the same for all ranks, separates attempts.
            store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        rank = dist.get_rank()

    # Errors carry the rank that met them: only that rank prints them.
    current = World(rank, size, own_device)
    try:
        with current.naming_lost_ranks():
            yield current
    except TransduceError as error:
        error.met_by_rank = current.rank
        if store is not None:
            failures = _Failures(current, store)
            error.is_printed_elsewhere |= failures.is_printed_elsewhere(error)
            dist.destroy_process_group()  # which tells ranks that wait for this one
            failures.wait()
        raise
    finally:
        if size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the encoder and decoder layers of a model, as far as it has any."""
    return [*getattr(model, "encoder", ()), *getattr(model, "decoder", ())]


def distribute(
    root: nn.Module, model: nn.Module, how: Sharding, world: World, *, bf16: bool = False
) -> nn.Module:
    """Return the root module, whose forward computes the loss, wrapped for the ranks."""
    if world.size == 1:
        return root
    if how == "ddp":
        devices = [world.device.index] if world.device.type == "cuda" else None
        return DistributedDataParallel(root, devices)

    # Shards are float32 masters. FSDP gathers them in bf16, and reduces gradients in float32.
    precision = MixedPrecisionPolicy()
    if bf16:
        precision = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers_of(model):
        fully_shard(layer, mp_policy=precision)
    fully_shard(root, mp_policy=precision)
    return root


class OutOfMemory(torch.OutOfMemoryError):
    """Some rank ran out of memory. All ranks raise this, before they exchange any gradient."""


@contextmanager
def gradient_sync(root: nn.Module, now: bool) -> Iterator[None]:
    """Exchange gradients between ranks after the backward pass inside, or keep accumulating.

    By default DDP exchanges gradients during the backward pass, where a rank that runs out of
    memory leaves the others waiting. Here the ranks compute without DDP's hooks, agree that every
    one succeeded, and then exchange all gradients in one message. (In bf16 all gradients arrive
    together anyway.) The order of summation never changes, so a resumed run is bit-identical.
    """
    # One process, or FSDP, which exchanges by itself.
    if not isinstance(root, DistributedDataParallel):
        if isinstance(root, FSDPModule):
            root.set_requires_gradient_sync(now)
        yield
        return

    # Compute without any exchange.
    failed = False
    gradients: list[Tensor] = []
    flat = torch.empty(0)
    try:
        with root.no_sync():
            yield
        if now:
            gradients = [weight.grad for weight in root.parameters() if weight.grad is not None]
            flat = nn.utils.parameters_to_vector(gradients)
    except torch.OutOfMemoryError:
        failed = True

    # Agree on success. A rank that fails before its last micro-batch is heard by the others when
    # they reach theirs.
    if (now or failed) and _max_over_ranks(failed):
        raise OutOfMemory

    # Average the gradients.
    if now:
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat.div_(dist.get_world_size()), gradients)


def _max_over_ranks(number: int) -> int:
    value = torch.tensor(int(number))  # on the CPU, so that no GPU has to be waited for
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return int(value)
