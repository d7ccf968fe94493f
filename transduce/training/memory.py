"""Fit a training step into memory: choose the micro-batches, and recompute activations."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transduce.config import Recipe
from transduce.describe import training_memory
from transduce.errors import ConfigError, RankError
from transduce.training.distributed import World, layers_of

MOST_MICRO_BATCHES = 1024
USABLE = 0.8  # the share of the free memory that training may take


def choose_micro_batches(recipe: Recipe, world: World, run: Path) -> int:
    """Return the number of micro-batches per step and rank, the same on all ranks.

    The recipe's number, or else an estimate; doubled while that many ran out of memory before.
    """
    # A note says that an earlier attempt with this number ran out of memory.
    count = recipe.training.micro_batches or _estimate(recipe, world)
    while out_of_memory_note(run, world, count).exists():
        count *= 2
    return world.max(count)


def out_of_memory_note(run: Path, world: World, micro_batches: int) -> Path:
    """Return the file that notes: this many micro-batches on this many ranks need more memory."""
    return run / f"out-of-memory-{world.size}-ranks-{micro_batches}-micro-batches"


def more_micro_batches(count: int, run: Path, world: World, *, all_ranks_know: bool) -> int:
    """Return how many micro-batches to take after a step of this many ran out of memory.

    If only this rank ran out of memory, the others wait for it in the middle of a step. Then it
    leaves a note for the next attempt, and raises a RankError.
    """
    if count >= MOST_MICRO_BATCHES:
        raise ConfigError(
            f"out of memory with {count} micro-batches per step; choose a smaller model"
        ) from None
    if not all_ranks_know:
        out_of_memory_note(run, world, count).touch()
        raise RankError(
            f"rank {world.rank} ran out of memory with {count} micro-batches per step; restart the "
            f"run (torchrun --max-restarts does that), and it resumes with {2 * count}"
        ) from None
    return 2 * count


def _estimate(recipe: Recipe, world: World) -> int:
    """Return the smallest power of two that should fit into the memory of the device.

    On a GPU that is the free memory; on a CPU, where the free memory varies, all of it.
    """
    on_gpu = world.device.type == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_gpu else _machine_memory()
    tokens = recipe.training.tokens_per_step
    shards = world.size if recipe.training.sharding == "fsdp" else 1
    width = 2 if on_gpu else 4  # bytes per activation: bf16 or float32

    # Double the number of micro-batches until one fits.
    count = 1
    while True:
        needed = training_memory(recipe, tokens // (count * world.size), width, shards)
        if needed <= USABLE * free:
            return count
        if count == MOST_MICRO_BATCHES:
            gib = 2**30
            raise ConfigError(
                f"training needs at least about {needed / gib:,.1f} GiB of memory, but may use "
                f"only {USABLE * free / gib:,.1f} of {free / gib:,.1f} GiB here; choose a smaller "
                "model, or fewer training.tokens_per_step"
            )
        count *= 2


def _machine_memory(container: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Return the memory of the machine in bytes, or the limit of its container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = container.read_text().strip() if container.is_file() else "max"
    return machine if limit == "max" else min(machine, int(limit))


def recompute_activations(model: nn.Module) -> None:
    """Make each layer drop its activations and recompute them in the backward pass."""
    layers = layers_of(model)
    if not layers:
        raise ConfigError(
            f"training.recompute is on, but {type(model).__name__} has no encoder or decoder "
            "layers; set training.recompute=false"
        )
    for layer in layers:
        layer.forward = _recomputing_forward(layer)


def _recomputing_forward(layer: nn.Module) -> Any:
    forward = layer.forward

    def recomputing(*args: Any) -> Any:
        # The backward pass must use the weights of this forward pass. In bf16 these are rounded
        # copies, which the layer no longer has by then.
        weights: dict[str, Tensor] = dict(layer.named_parameters())

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), nn.utils.stateless._reparametrize_module(layer, weights)

        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts)

    return recomputing
