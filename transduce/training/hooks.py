"""Custom parts of a run, passed from Python: a model, optimizers, a schedule, a loss, callbacks.

Each is a plain function; the recipe decides whatever is not passed. A mistake in one of them
becomes a one-line error that names it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.config import ModelConfig, Recipe, TrainingConfig
from transduce.engines.model_calls import refuse_other_protocol
from transduce.errors import ConfigError, HookError, TransduceError, lacks_memory
from transduce.model import Transformer
from transduce.training.optimizer import build_optimizers, learning_rate

T = TypeVar("T")
NamedParameters = list[tuple[str, nn.Parameter]]
Record = dict[str, Any]

# The signatures of the custom functions.
BuildModel = Callable[[ModelConfig], nn.Module]
BuildOptimizers = Callable[[NamedParameters, TrainingConfig], Optimizer | Sequence[Optimizer]]
Schedule = Callable[[int], float]  # step 1, 2, 3, ... -> learning rate
# Logits (B, T, V), labels (B, T) -> the sum over target tokens.
Loss = Callable[[Tensor, Tensor], Tensor]
Callback = Callable[[Record], object]  # gets each record of metrics.jsonl; True ends the run


@dataclass(frozen=True)
class Hooks:
    """The custom functions of a run; None where the recipe decides."""

    model: BuildModel | nn.Module | None = None  # of a module, copies are trained
    optimizers: BuildOptimizers | None = None
    schedule: Schedule | None = None
    loss: Loss | None = None
    callbacks: tuple[Callback, ...] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            for hook in value if item.name == "callbacks" else [value]:
                if hook is not None and not callable(hook):
                    raise ConfigError(f"{item.name} is {hook!r}; expected a function")

    @property
    def names(self) -> dict[str, str]:
        """The names of the functions that change the result of training, by role."""
        roles = [item.name for item in fields(self) if item.name != "callbacks"]
        hooks = {role: getattr(self, role) for role in roles}
        return {role: name_of(hook) for role, hook in hooks.items() if hook is not None}

    def build_model(self, config: ModelConfig) -> nn.Module:
        """Build a new model, and check that it can be trained and searched."""
        if self.model is None:
            return Transformer(config)
        if isinstance(self.model, nn.Module):
            model: Any = copy.deepcopy(self.model)
        else:
            model = call_hook("model", self.model, config)

        # A search needs `config`, `encode` and `decode`; the loss needs the right vocabulary.
        refuse_other_protocol(model)
        for name in ("vocab_size", "source_pad"):
            found = getattr(model.config, name)
            expected = getattr(config, name)
            if found != expected:
                raise ConfigError(
                    f"the model {type(model).__name__} has config.{name} {found:,}, but the "
                    f"tokenizer needs {expected:,}; build the model from the config it is given"
                )
        return model

    def build_optimizers(
        self, parameters: Iterable[tuple[str, nn.Parameter]], training: TrainingConfig
    ) -> list[Any]:
        """Build the optimizers, and check that their state can be saved."""
        if self.optimizers is None:
            return build_optimizers(parameters, training)

        # Parameters that are frozen are not passed on.
        trainable = [(name, weight) for name, weight in parameters if weight.requires_grad]
        result = call_hook("optimizers", self.optimizers, trainable, training)
        optimizers = list(result) if isinstance(result, Sequence) else [result]
        for optimizer in optimizers:
            if not isinstance(optimizer, Optimizer):
                needed = ("step", "state_dict", "load_state_dict")
                missing = [name for name in needed if not hasattr(optimizer, name)]
                detail = f", which has no {missing[0]}" if missing else ""
                raise ConfigError(
                    f"optimizers returned a {type(optimizer).__name__}{detail}; expected a "
                    "torch.optim.Optimizer or a list of them, whose state is saved with the run"
                )
        return optimizers

    def build_schedule(self, recipe: Recipe) -> Schedule:
        """Return the function that gives the learning rate of each step."""
        if self.schedule is None:
            return partial(learning_rate, recipe)
        schedule = self.schedule

        # Checked at every step: a wrong rate would ruin the weights silently.
        def checked(step: int) -> float:
            rate = call_hook("schedule", schedule, step)
            if not isinstance(rate, int | float) or not 0 <= rate < math.inf:
                raise ConfigError(
                    f"schedule {name_of(schedule)} returned {rate!r} for step {step}; expected a "
                    "learning rate, a number that is not negative"
                )
            return float(rate)

        return checked

    def run_callbacks(self, record: Record) -> bool:
        """Pass a record to every callback; return whether one of them asks to end the run."""
        answers = [call_hook("callback", callback, dict(record)) for callback in self.callbacks]
        return any(answer is True for answer in answers)


def call_hook(kind: str, hook: Callable[..., T], *arguments: Any) -> T:
    """Call a custom function; an exception becomes a one-line error that names the function.

    Errors of transduce and a lack of memory pass through: the caller handles them.
    """
    try:
        return hook(*arguments)
    except TransduceError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        # Only the first line: messages of torch may have many.
        reason = str(error).partition("\n")[0]
        message = f"{kind} {name_of(hook)} raised {type(error).__name__}: {reason}"
        raise HookError(message) from error


def name_of(hook: Any) -> str:
    """Return the name of a function or a class, or of an object's class."""
    named = hook if hasattr(hook, "__qualname__") else type(hook)
    return str(named.__qualname__)


def call_loss(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum that a custom loss computes, checked to be one differentiable number."""
    total = call_hook("loss", loss, logits, labels)
    is_number = isinstance(total, Tensor) and total.numel() == 1
    if not is_number or (torch.is_grad_enabled() and not total.requires_grad):
        shape = tuple(total.shape) if isinstance(total, Tensor) else total
        raise ConfigError(
            f"loss {name_of(loss)} returned {type(total).__name__} {shape}; expected one number as "
            "a tensor that requires gradients: the sum over all target tokens"
        )
    return total.reshape(())
