"""Ranks and devices, on PyTorch's own engine: DDP and FSDP2, applied from outside. One process is `size == 1`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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

from transduce.errors import RankError
from transduce.model import Transformer

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

    def agrees(self, number: int) -> bool:
        """Whether every rank has this number."""
        most = torch.tensor([number, -number])  # and least; on the CPU: no device is waited for
        if self.size > 1:
            dist.all_reduce(most, dist.ReduceOp.MAX)
        return int(most[0]) == -int(most[1])

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return bool(self.total(torch.tensor(float(flag))) > 0)

    def share(self, items: Sequence[T], work: Callable[[Sequence[T]], list[R]]) -> list[R]:
        """Work done on a list, a part of it by each rank; every rank has all results, in order."""
        mine = work(items[self.rank :: self.size])
        if self.size == 1:
            return mine
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, mine)
        return [parts[index % self.size][index // self.size] for index in range(len(items))]

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
    try:
        yield World(dist.get_rank() if size > 1 else 0, size, here)
    except RuntimeError as error:
        if size == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise RankError(
            f"rank {dist.get_rank()} has lost another one, which ended first; look for what that one said"
        ) from error
    finally:
        if size > 1:
            dist.destroy_process_group()


def distribute(root: nn.Module, model: Transformer, how: Sharding, world: World, *, bf16: bool = False) -> nn.Module:
    """The root module, whose forward computes the loss, spread over the ranks of the world."""
    if world.size == 1:
        return root
    if how == "ddp":
        devices = [world.device.index] if world.device.type == "cuda" else None
        return DistributedDataParallel(root, devices, gradient_as_bucket_view=True)
    # Of the keys and values that a decoder layer returns (for a search; views of one product) nothing is made here.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    # Shards are float32 masters; what is gathered for computation may be bf16, what is reduced is float32 again.
    precision = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32) if bf16 else MixedPrecisionPolicy()
    for layer in (*model.encoder, *model.decoder):
        fully_shard(layer, mp_policy=precision)
    fully_shard(root, mp_policy=precision)
    return root


def settle(root: nn.Module, *inputs: Any) -> None:
    """Before the first step of any attempt: a backward pass that does not count.

    DDP lays out its buckets anew after the first one, and the last bits of a sum over more than two ranks depend on
    where in a bucket it stands. So every step finds the same layout, and a resumed run is bit-identical.
    """
    if isinstance(root, DistributedDataParallel):
        root(*inputs)[0].backward()
        root.zero_grad()


@contextmanager
def gradients_shared(root: nn.Module, now: bool) -> Iterator[None]:
    """Ranks exchange gradients in this backward pass, or, while micro-batches accumulate, not yet."""
    if isinstance(root, FSDPModule):
        root.set_requires_gradient_sync(now)
    silent = isinstance(root, DistributedDataParallel) and not now
    with root.no_sync() if silent else nullcontext():  # type: ignore[operator]
        yield
