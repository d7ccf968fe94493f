"""Ranks and devices, on PyTorch's own engine: DDP and FSDP2, applied from outside. One process is `size == 1`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from transduce.errors import RankError, TransduceError

Sharding = Literal["ddp", "fsdp"]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class World:
    """This process among all."""

    rank: int
    size: int
    device: torch.device

    @property
    def speaks(self) -> bool:
        """Only rank 0 speaks."""
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all ranks."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def most(self, number: int) -> int:
        """The largest of the numbers that ranks have."""
        return _most(number) if self.size > 1 else number

    def agrees(self, number: int) -> bool:
        """Whether every rank has this number."""
        return self.most(number) == -self.most(-number)

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return self.most(flag) > 0

    def share(self, items: Sequence[T], work: Callable[[Sequence[T]], list[R]]) -> list[R]:
        """Work done on a list, a part of it by each rank; every rank has all results, in order."""
        mine = work(items[self.rank :: self.size])
        if self.size == 1:
            return mine
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, mine)
        return [parts[index % self.size][index // self.size] for index in range(len(items))]

    @contextmanager
    def naming_the_lost(self) -> Iterator[None]:
        """An error of the way between ranks becomes one line: another rank is gone."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            raise RankError(
                f"rank {self.rank} has lost another one, which ended first; look for what that one said"
            ) from error

    def wait(self) -> None:
        """Until every rank is here, however long the first one takes: a corpus may be hours of work."""
        if self.size > 1:
            dist.barrier(dist.new_group(backend="gloo", timeout=timedelta(days=7)))


@contextmanager
def world(device: str | None = None) -> Iterator[World]:
    """Join the processes that torchrun started, if it did, and leave them at the end."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    here = torch.device(kind, local_rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(here)
    if size > 1:
        store, rank, _ = next(rendezvous("env://"))
        if int(os.environ.get("LOCAL_WORLD_SIZE", "0")) == size:
            # torchrun keeps its store over restarts, and with it the addresses of the dead. One agent counts for all.
            store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    this = World(dist.get_rank() if size > 1 else 0, size, here)
    try:
        with this.naming_the_lost():
            yield this
    except TransduceError as error:
        error.met_by_rank = this.rank
        raise
    finally:
        if size > 1:
            dist.destroy_process_group()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a model's encoder and decoder, as far as it has them."""
    return [layer for stack in ("encoder", "decoder") for layer in getattr(model, stack, ())]


def distribute(
    root: nn.Module, model: nn.Module, how: Sharding, world: World, *, bf16: bool = False
) -> nn.Module:
    """The root module, whose forward computes the loss, spread over the ranks of the world."""
    if world.size == 1:
        return root
    if how == "ddp":
        devices = [world.device.index] if world.device.type == "cuda" else None
        return DistributedDataParallel(root, devices)
    # Shards are float32 masters; what is gathered for computation may be bf16, what is reduced is float32 again.
    precision = (
        MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
        if bf16
        else MixedPrecisionPolicy()
    )
    for layer in layers_of(model):
        fully_shard(layer, mp_policy=precision)
    fully_shard(root, mp_policy=precision)
    return root


class OutOfMemory(torch.OutOfMemoryError):
    """A rank has no memory for its part of a step. All ranks raise it, and none has exchanged or changed anything."""


@contextmanager
def gradients_shared(root: nn.Module, now: bool) -> Iterator[None]:
    """Ranks exchange the gradients of this backward pass, or, while micro-batches accumulate, not yet.

    DDP by itself would exchange inside the pass, where a rank that runs out of memory leaves the others waiting. So
    its ranks compute alone and exchange all at once, when they know that every one is through. (In bf16 gradients
    leave the pass together anyway.) The order never changes, and with it the last bits of a sum: a resumed run is
    bit-identical.
    """
    if not isinstance(root, DistributedDataParallel):
        if isinstance(root, FSDPModule):
            root.set_requires_gradient_sync(now)
        yield
        return
    failed, gradients, flat = False, [], torch.empty(0)
    try:
        with root.no_sync():
            yield
        if now:
            gradients = [weight.grad for weight in root.parameters() if weight.grad is not None]
            flat = nn.utils.parameters_to_vector(gradients)
    except torch.OutOfMemoryError:
        failed = True
    if (now or failed) and _most(failed):
        raise OutOfMemory
    if now:
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat.div_(dist.get_world_size()), gradients)


def _most(number: int) -> int:
    value = torch.tensor(int(number))  # on the CPU: no device is waited for
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return int(value)
