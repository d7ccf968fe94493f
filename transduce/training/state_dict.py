"""The state of a training as named tensors, whole and alike however it is spread: one process, DDP or FSDP.

So a run can go on with another number of ranks, or another way of sharding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
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

from transduce.errors import ConfigError

Groups = dict[str, dict[str, Tensor]]

WHOLE = StateDictOptions(full_state_dict=True)
GROUP = "group "  # and its number: what an optimizer remembers of a group of parameters
NUMBERS = {"int": int, "float": float, "bool": bool}
PREFIX = "model."  # of the model inside the learner


def collect(learner: nn.Module, optimizers: list[Optimizer]) -> Groups:
    """Weights by their public names, and what the optimizers remember of each. Every rank must call it."""
    weights: dict[str, Any] = get_model_state_dict(learner, options=WHOLE)
    memory: dict[str, Any] = get_optimizer_state_dict(learner, optimizers, options=WHOLE)
    kept: dict[str, Tensor] = {}
    for name, values in memory["state"].items():
        kept |= _as_tensors(name, values)
    for number, (optimizer, group) in enumerate(_groups(optimizers)):
        kept |= _as_tensors(f"{GROUP}{number}", _moved(optimizer, group))
    return {
        "model": {name.removeprefix(PREFIX): weight for name, weight in weights.items()},
        "optimiser": kept,
    }


def restore(
    learner: nn.Module, optimizers: list[Optimizer], groups: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Put a collected state back. Settings of the optimizers stay those of the recipe."""
    memory: dict[str, Any] = get_optimizer_state_dict(learner, optimizers, options=WHOLE)
    memory["state"] = {}
    moved: list[tuple[int, str, Any]] = []
    for name, value in groups["optimiser"].items():
        weight, _, key = name.partition("/")
        key, _, kind = key.partition(":")
        found = NUMBERS[kind](value.item()) if kind else value.clone()  # not a view into the file
        if weight.startswith(GROUP):
            moved.append((int(weight.removeprefix(GROUP)), key, found))
        else:
            memory["state"].setdefault(weight, {})[key] = found
    # A weight that nothing learns from, as some models have, is not remembered.
    options = StateDictOptions(full_state_dict=True, strict=False)
    set_optimizer_state_dict(learner, optimizers, memory, options=options)
    for number, key, found in moved:
        _groups(optimizers)[number][1][key] = found
    # The last: torch fills optimizers by a step that is none.
    load_weights(learner, groups["model"])


def _groups(optimizers: list[Optimizer]) -> list[tuple[Optimizer, dict[str, Any]]]:
    return [(optimizer, group) for optimizer in optimizers for group in optimizer.param_groups]


def _moved(optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a group of parameters that are not as the optimizer was made: some count steps there."""
    return {
        key: value
        for key, value in group.items()
        if key not in ("lr", "initial_lr")
        and type(value).__name__ in NUMBERS
        and value != optimizer.defaults.get(key)
    }


def _as_tensors(name: str, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """What an optimizer remembers under a name; numbers become tensors whose names say what they were."""
    found = {}
    for key, value in values.items():
        kind = type(value).__name__
        if isinstance(value, Tensor):
            found[f"{name}/{key}"] = value
        elif kind in NUMBERS:
            found[f"{name}/{key}:{kind}"] = torch.tensor(
                value, dtype=torch.float64 if kind == "float" else None
            )
        else:
            raise ConfigError(
                f"an optimizer keeps {key!r}, a {kind}, of {name}; only tensors and numbers can be saved with a run"
            )
    return found


def load_weights(
    learner: nn.Module, weights: Mapping[str, Tensor], *, partly: bool = False
) -> list[str]:
    """The model's weights by their public names; `partly`: names that the model has and they have not are listed."""
    own = {name.removeprefix(PREFIX) for name in get_model_state_dict(learner)}
    missing, others = sorted(own - weights.keys()), sorted(weights.keys() - own)
    if others or (missing and not partly):
        what = (
            f"{others[0]} is not in the model"
            if others
            else f"{missing[0]} of the model is not among the weights"
        )
        raise ConfigError(f"{what}; hand in the model that they were trained with")
    named: dict[str, Any] = {f"{PREFIX}{name}": weight for name, weight in weights.items()}
    options = StateDictOptions(full_state_dict=True, strict=not partly)
    set_model_state_dict(learner, named, options=options)
    return missing


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors gathered from all ranks, where they are sharded. Every rank must call it."""
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in tensors.items()
    }


def spread(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Whole tensors, in the order, on the device and sharded as the model's parameters of the same names are."""
    return {name: _like(weight, tensors[name]) for name, weight in model.named_parameters()}


def _like(weight: Tensor, value: Tensor) -> Tensor:
    here = value.to(weight.device, copy=True)  # not a view into the file
    return (
        distribute_tensor(here, weight.device_mesh, weight.placements)
        if isinstance(weight, DTensor)
        else here
    )
