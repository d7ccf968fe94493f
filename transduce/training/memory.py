"""Fitting a step into a device's memory: how many micro-batches, and activations computed twice instead of kept."""

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
from transduce.errors import ConfigError
from transduce.training.distributed import World, layers_of


def fitting_micro_batches(recipe: Recipe, world: World, run: Path) -> int:
    """The recipe's number, or as many as should fit; more where that was too few. All ranks have the same."""
    parts = recipe.training.micro_batches or _estimate(recipe, world)
    while too_few(run, world, parts).exists():
        parts *= 2
    return world.most(parts)


def too_few(run: Path, world: World, parts: int) -> Path:
    """A file that says: on so many ranks a step of so many micro-batches ran out of memory."""
    return run / f"out-of-memory-{world.size}-ranks-{parts}-micro-batches"


def _estimate(recipe: Recipe, world: World) -> int:
    """Micro-batches whose memory, by estimate, the device has free. On a CPU, where that varies, it has all of it."""
    cuda, parts = world.device.type == "cuda", 1
    free = torch.cuda.mem_get_info()[0] if cuda else _machine_memory()
    tokens, shards = (
        recipe.training.tokens_per_step,
        world.size if recipe.training.sharding == "fsdp" else 1,
    )
    width = 2 if cuda else 4  # bytes of a number that is not a weight: bf16 or float32
    while (
        needed := training_memory(recipe.model, tokens // (parts * world.size), width, shards)
    ) > 0.8 * free:
        if parts == 1024:
            raise ConfigError(
                f"training needs at least about {needed / 2**30:,.1f} GiB of memory, and may take "
                f"{0.8 * free / 2**30:,.1f} of {free / 2**30:,.1f} GiB here; choose a smaller model, or fewer "
                "training.tokens_per_step"
            )
        parts *= 2
    return parts


def _machine_memory(container: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes of the machine, or what its container may take of them."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = container.read_text().strip() if container.is_file() else "max"
    return whole if allowed == "max" else min(whole, int(allowed))


def recompute(model: nn.Module) -> None:
    """Layers forget what is inside them, and compute it again in the backward pass.

    With the weights of the forward pass: in bf16 those are rounded copies, by then no longer in their place.
    """
    layers = layers_of(model)
    if not layers:
        raise ConfigError(
            f"training.recompute is on, but {type(model).__name__} has no encoder and decoder layers"
        )
    for layer in layers:
        forward = layer.forward

        def again(*args: Any, layer: nn.Module = layer, forward: Any = forward) -> Any:
            weights: dict[str, Tensor] = dict(layer.named_parameters())

            def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
                return nullcontext(), nn.utils.stateless._reparametrize_module(layer, weights)

            return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts)

        layer.forward = again
