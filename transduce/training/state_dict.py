"""The training state as named, unsharded tensors, the same for one process, DDP and FSDP.

So a run can resume with another number of ranks, or another way of sharding.
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

UNSHARDED = StateDictOptions(full_state_dict=True)
# Tensor names: "encoder.0...weight/exp_avg" is the state of a parameter, "group 0/steps:int" that
# of a parameter group. What follows the colon is the Python type of a number saved as a tensor.
GROUP = "group "
NUMBER_TYPES = {"int": int, "float": float, "bool": bool}
PREFIX = "model."  # the name of the model inside the learner


def collect(learner: nn.Module, optimizers: list[Optimizer]) -> Groups:
    """Return the weights by their public names, and the optimizers' state. All ranks must call."""
    weights: dict[str, Any] = get_model_state_dict(learner, options=UNSHARDED)
    # Public names have no prefix of the learner.
    model = {name.removeprefix(PREFIX): weight for name, weight in weights.items()}

    optimizer_state: dict[str, Any] = get_optimizer_state_dict(
        learner, optimizers, options=UNSHARDED
    )
    # Flatten the nested state to named tensors, which a checkpoint can contain.
    tensors: dict[str, Tensor] = {}
    for name, values in optimizer_state["state"].items():
        tensors |= _as_tensors(name, values)
    for number, (optimizer, group) in enumerate(_parameter_groups(optimizers)):
        tensors |= _as_tensors(f"{GROUP}{number}", _changed_numbers(optimizer, group))
    return {"model": model, "optimiser": tensors}


def restore(
    learner: nn.Module, optimizers: list[Optimizer], groups: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Restore a collected state. The settings of the optimizers stay those of the recipe."""
    # Sort the saved values into those of parameters and those of parameter groups.
    optimizer_state: dict[str, Any] = get_optimizer_state_dict(
        learner, optimizers, options=UNSHARDED
    )
    optimizer_state["state"] = {}
    group_values: list[tuple[int, str, Any]] = []
    for name, tensor in groups["optimiser"].items():
        owner, _, key = name.partition("/")
        key, _, number_type = key.partition(":")
        # A clone, because the tensor is a view of the checkpoint file.
        value = NUMBER_TYPES[number_type](tensor.item()) if number_type else tensor.clone()
        if owner.startswith(GROUP):
            group_values.append((int(owner.removeprefix(GROUP)), key, value))
        else:
            optimizer_state["state"].setdefault(owner, {})[key] = value

    # Not strict: a weight that gets no gradient, as some models have, has no optimizer state.
    options = StateDictOptions(full_state_dict=True, strict=False)
    set_optimizer_state_dict(learner, optimizers, optimizer_state, options=options)
    for number, key, value in group_values:
        _, group = _parameter_groups(optimizers)[number]
        group[key] = value

    # Weights last: torch initializes optimizers by an empty step, which must not touch them.
    load_weights(learner, groups["model"])


def _parameter_groups(optimizers: list[Optimizer]) -> list[tuple[Optimizer, dict[str, Any]]]:
    return [(optimizer, group) for optimizer in optimizers for group in optimizer.param_groups]


def _changed_numbers(optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a group that differ from the defaults: some optimizers count steps."""
    return {
        key: value
        for key, value in group.items()
        if key not in ("lr", "initial_lr")
        and type(value).__name__ in NUMBER_TYPES
        and value != optimizer.defaults.get(key)
    }


def _as_tensors(name: str, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return an optimizer's values as tensors; a number's tensor has its type in its name."""
    tensors = {}
    for key, value in values.items():
        value_type = type(value).__name__
        if isinstance(value, Tensor):
            tensors[f"{name}/{key}"] = value
        elif value_type in NUMBER_TYPES:
            dtype = torch.float64 if value_type == "float" else None
            tensors[f"{name}/{key}:{value_type}"] = torch.tensor(value, dtype=dtype)
        else:
            raise ConfigError(
                f"an optimizer keeps {key!r}, a {value_type}, for {name}; only tensors and numbers "
                "can be saved with a run: keep nothing else in the optimizer's state"
            )
    return tensors


def load_weights(
    learner: nn.Module, weights: Mapping[str, Tensor], *, allow_missing: bool = False
) -> list[str]:
    """Load weights by their public names; return the model's weights that are not among them."""
    own_names = {name.removeprefix(PREFIX) for name in get_model_state_dict(learner)}
    missing = sorted(own_names - weights.keys())
    unexpected = sorted(weights.keys() - own_names)
    if unexpected:
        raise ConfigError(
            f"the saved weight {unexpected[0]} is not in the model; pass the model that the "
            "weights were trained with"
        )
    if missing and not allow_missing:
        raise ConfigError(
            f"the model's weight {missing[0]} is not among the saved weights; pass the model that "
            "the weights were trained with"
        )

    # Every rank takes its shards.
    named: dict[str, Any] = {f"{PREFIX}{name}": weight for name, weight in weights.items()}
    options = StateDictOptions(full_state_dict=True, strict=not allow_missing)
    set_model_state_dict(learner, named, options=options)
    return missing


def gather(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors, gathered from all ranks where they are sharded. All ranks must call."""
    return {
        name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        for name, tensor in tensors.items()
    }


def shard_like(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return whole tensors in the order, on the device and sharded as the model's parameters."""
    return {name: _shard(tensors[name], weight) for name, weight in model.named_parameters()}


def _shard(tensor: Tensor, weight: Tensor) -> Tensor:
    on_device = tensor.to(weight.device, copy=True)  # a copy, not a view of the checkpoint file
    if isinstance(weight, DTensor):
        return distribute_tensor(on_device, weight.device_mesh, weight.placements)
    return on_device
