"""What a run does in its own way: a model, optimizers, a schedule, a loss, callbacks. Each is a plain function.

What is not given is the recipe's. A mistake in one of them is one line that names it.
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
from transduce.engines.torch import refuse_other_protocol
from transduce.errors import ConfigError, HookError, TransduceError, lacks_memory
from transduce.model import Transformer
from transduce.training.optimizer import build_optimizers
from transduce.training.schedule import learning_rate

T = TypeVar("T")
NamedParameters = list[tuple[str, nn.Parameter]]
Record = dict[str, Any]

BuildModel = Callable[[ModelConfig], nn.Module]
BuildOptimizers = Callable[[NamedParameters, TrainingConfig], Optimizer | Sequence[Optimizer]]
Schedule = Callable[[int], float]  # step 1, 2, 3, ... -> learning rate
# Logits (B, T, V), labels (B, T) -> the sum over target tokens.
Loss = Callable[[Tensor, Tensor], Tensor]
Callback = Callable[[Record], object]  # each record of metrics.jsonl; True ends the run


@dataclass(frozen=True)
class Hooks:
    """The functions that were handed in."""

    model: BuildModel | nn.Module | None = None  # a module is a template: copies of it are trained
    optimizers: BuildOptimizers | None = None
    schedule: Schedule | None = None
    loss: Loss | None = None
    callbacks: tuple[Callback, ...] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            given = getattr(self, item.name)
            for hook in given if item.name == "callbacks" else [given]:
                if hook is not None and not callable(hook):
                    raise ConfigError(f"{item.name} is {hook!r}; expected a function")

    @property
    def names(self) -> dict[str, str]:
        """What was handed in, by name, for all that decides how a run goes on."""
        given = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name != "callbacks"
        }
        return {name: name_of(hook) for name, hook in given.items() if hook is not None}

    def build_model(self, config: ModelConfig) -> nn.Module:
        """Make the model, new each time, and check that it can be trained and searched."""
        if self.model is None:
            return Transformer(config)
        if isinstance(self.model, nn.Module):
            model: Any = copy.deepcopy(self.model)
        else:
            model = called("model", self.model, config)
        refuse_other_protocol(model)
        for name in ("vocab_size", "source_pad"):
            found, expected = getattr(model.config, name), getattr(config, name)
            if found != expected:
                raise ConfigError(
                    f"the model {type(model).__name__} has config.{name} {found:,}, but the tokenizer makes it "
                    f"{expected:,}; build the model from the config that it is given"
                )
        return model

    def build_optimizers(
        self, parameters: Iterable[tuple[str, nn.Parameter]], training: TrainingConfig
    ) -> list[Any]:
        """Make the optimizers, and check that their state can be saved."""
        if self.optimizers is None:
            return build_optimizers(parameters, training)
        learning = [(name, weight) for name, weight in parameters if weight.requires_grad]
        made = called("optimizers", self.optimizers, learning, training)
        optimizers = list(made) if isinstance(made, Sequence) else [made]
        for optimizer in optimizers:
            if not isinstance(optimizer, Optimizer):
                lacks = [
                    name
                    for name in ("step", "state_dict", "load_state_dict")
                    if not hasattr(optimizer, name)
                ]
                raise ConfigError(
                    f"optimizers gave a {type(optimizer).__name__}{f', which has no {lacks[0]}' if lacks else ''}; "
                    "expected torch.optim.Optimizer, or a list of them: its state is saved with the run"
                )
        return optimizers

    def rate(self, recipe: Recipe) -> Schedule:
        """The learning rate of each step."""
        if self.schedule is None:
            return partial(learning_rate, recipe)
        schedule = self.schedule

        def checked(step: int) -> float:
            rate = called("schedule", schedule, step)
            if not isinstance(rate, int | float) or not 0 <= rate < math.inf:
                raise ConfigError(
                    f"schedule {name_of(schedule)} gave {rate!r} for step {step}; expected a learning rate from 0 on"
                )
            return float(rate)

        return checked

    def tell(self, record: Record) -> bool:
        """Hand a record to every callback; whether one of them wants the run to end."""
        answers = [called("callback", callback, dict(record)) for callback in self.callbacks]
        return any(answer is True for answer in answers)


def called(kind: str, hook: Callable[..., T], *arguments: Any) -> T:
    """Call a hook. What it raises becomes one line that names it, but for our own errors and lack of memory."""
    try:
        return hook(*arguments)
    except TransduceError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise HookError(
            f"{kind} {name_of(hook)} raised {type(error).__name__}: {reason}"
        ) from error


def name_of(hook: Any) -> str:
    """What a function, a class or an object is called."""
    named = hook if hasattr(hook, "__qualname__") else type(hook)
    return str(named.__qualname__)


def own_loss(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """The sum that a loss of one's own gives, checked."""
    total = called("loss", loss, logits, labels)
    if (
        not isinstance(total, Tensor)
        or total.numel() != 1
        or not (total.requires_grad or not torch.is_grad_enabled())
    ):
        shape = tuple(total.shape) if isinstance(total, Tensor) else total
        raise ConfigError(
            f"loss {name_of(loss)} gave {type(total).__name__} {shape}; expected one number as a tensor that gradients "
            "flow through: the sum over all target tokens"
        )
    return total.reshape(())
