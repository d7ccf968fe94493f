"""Find what in a saved training state does not fit the model and its optimizers.

A checkpoint may be intact but belong to another model, or someone may have edited it and renewed
its checksums. torch would fail in the middle of a step, or write a tensor of another shape beyond
its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from transduce.storage.tensors import TensorType
from transduce.training.state_dict import GROUP, NUMBER_TYPES, PREFIX

Types: TypeAlias = Mapping[str, TensorType]

# What the optimizers of a recipe keep for each weight: Adam and AdamW, or Muon.
STATES = [{"step", "exp_avg", "exp_avg_sq"}, {"momentum_buffer"}]


def weights_misfit(model: nn.Module, saved: Types) -> str | None:
    """Return how saved weights differ from those of the model, or None."""
    weights = _weights(model)
    return _missing(weights, saved) or _other_type(weights, saved)


def average_misfit(model: nn.Module, saved: Types) -> str | None:
    """Return how a saved moving average differs from the model's parameters, or None."""
    parameters = dict(model.named_parameters())
    return _missing(parameters, saved) or _other_type(_weights(model), saved)


def optimizer_misfit(
    model: nn.Module, saved: Types, parameter_groups: int, *, standard: bool, complete: bool
) -> str | None:
    """Return what in a saved state does not belong to the model's optimizers, or None.

    With `standard`, the optimizers are those of a recipe, whose state is known. With `complete`,
    they have a state of every parameter; some custom models have parameters without a gradient.
    """
    weights = _weights(model)
    states: dict[str, set[str]] = {}
    for name, found in saved.items():
        owner, _, key = name.partition("/")
        number_type = key.partition(":")[2]
        is_number = not found.shape and (not number_type or number_type in NUMBER_TYPES)

        # "group 0/steps:int" is a number of a parameter group.
        if owner.startswith(GROUP):
            known = [f"{GROUP}{number}" for number in range(parameter_groups)]
            if owner not in known or not number_type or not is_number:
                return f"{name} is no number of a parameter group"
            continue

        # "encoder.0...weight/exp_avg" belongs to a weight.
        weight = owner.removeprefix(PREFIX)
        if weight not in weights:
            return f"{name} belongs to no weight of the model"
        if number_type and not is_number:
            return f"{name} is {found}, not a number"
        if standard and not is_number and found != weights[weight]:
            return f"{name} is {found}, but the weight is {weights[weight]}"
        states.setdefault(weight, set()).add(key)

    # Adam would go on with other averages where a part is missing, or fail.
    if complete:
        states = {name: states.get(name, set()) for name, _ in model.named_parameters()}
    for weight, state in states.items():
        if standard and state not in STATES:
            return f"it lacks a part of the state of {weight}"
    return None


def _weights(model: nn.Module) -> dict[str, TensorType]:
    state = get_model_state_dict(model)
    return {
        name: TensorType.of(weight) for name, weight in state.items() if isinstance(weight, Tensor)
    }


def _missing(needed: Iterable[str], saved: Types) -> str | None:
    """Return the first name that is needed and was not saved, in a phrase."""
    for name in needed:
        if name not in saved:
            return f"it lacks {name}"
    return None


def _other_type(weights: Types, saved: Types) -> str | None:
    """Return the first saved tensor that is none of the model's weights, in a phrase."""
    for name, found in saved.items():
        if name not in weights:
            return f"it has {name}, which is not in the model"
        if found != weights[name]:
            return f"{name} is {found}, but {weights[name]} in the model"
    return None
