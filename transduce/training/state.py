"""The state of a training as named tensors, whole and alike however it is spread: one process, DDP or FSDP.

So a run can go on with another number of ranks, or another way of sharding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

Groups = dict[str, dict[str, Tensor]]

WHOLE = StateDictOptions(full_state_dict=True)
PREFIX = "model."  # of the model inside the learner


def collect(learner: nn.Module, optimisers: list[Optimizer]) -> Groups:
    """Weights by their public names, and what the optimisers remember of each. Every rank must call it."""
    weights: dict[str, Any] = get_model_state_dict(learner, options=WHOLE)
    memory: dict[str, Any] = get_optimizer_state_dict(learner, optimisers, options=WHOLE)["state"]  # type: ignore[assignment]
    return {
        "model": {name.removeprefix(PREFIX): weight for name, weight in weights.items()},
        "optimiser": {f"{name}/{key}": value for name, values in memory.items() for key, value in values.items()},
    }


def restore(learner: nn.Module, optimisers: list[Optimizer], groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Put a collected state back. Settings of the optimisers stay those of the recipe."""
    load_weights(learner, groups["model"])
    memory: dict[str, Any] = get_optimizer_state_dict(learner, optimisers, options=WHOLE)
    memory["state"] = {}
    for name, value in groups["optimiser"].items():
        weight, _, key = name.partition("/")
        memory["state"].setdefault(weight, {})[key] = value.clone()  # not a view into the file
    set_optimizer_state_dict(learner, optimisers, memory, options=WHOLE)


def load_weights(learner: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """The model's weights by their public names."""
    set_model_state_dict(learner, {f"{PREFIX}{name}": weight for name, weight in weights.items()}, options=WHOLE)


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors gathered from all ranks, where they are sharded. Every rank must call it."""
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in tensors.items()}


def spread(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Whole tensors, in the order, on the device and sharded as the model's parameters of the same names are."""
    return {name: _like(weight, tensors[name]) for name, weight in model.named_parameters()}


def _like(weight: Tensor, value: Tensor) -> Tensor:
    here = value.to(weight.device, copy=True)  # not a view into the file
    return distribute_tensor(here, weight.device_mesh, weight.placements) if isinstance(weight, DTensor) else here
