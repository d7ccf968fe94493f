"""What a run trains: the model on its device, its optimizers, and the average of its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from transduce.config import Recipe
from transduce.data.batches import Layout
from transduce.kernels.accelerate import accelerate, deviation
from transduce.kernels.cpu import multiplies_bf16
from transduce.storage.tensors import TensorType
from transduce.training.cuda_graph import GraphedStep
from transduce.training.distributed import World, distribute
from transduce.training.hooks import Hooks
from transduce.training.memory import recompute_activations
from transduce.training.misfit import average_misfit, optimizer_misfit, weights_misfit
from transduce.training.state_dict import (
    Groups,
    collect,
    gather,
    load_weights,
    restore,
    shard_like,
)
from transduce.training.step import Learner, MicroBatch, StepResult, train_step


class Learning:
    """A model in training. It takes steps, and its state can be saved and restored."""

    def __init__(self, recipe: Recipe, world: World, hooks: Hooks) -> None:
        training = recipe.training
        self._training = training
        self._world = world
        self._hooks = hooks

        # The model, fast on its device.
        torch.manual_seed(training.seed)
        self.model: Any = hooks.build_model(recipe.model).to(world.device)
        self.acceleration = accelerate(self.model, world.device)
        self.bf16 = _uses_bf16(recipe, world, self.model)
        if training.recompute:
            recompute_activations(self.model)
        self.layout: Layout = "packed" if self.acceleration.packs else "padded"

        # The learner, spread over the ranks. FSDP rounds to bf16 by itself.
        sharded = world.size > 1 and training.sharding == "fsdp"
        learner = Learner(
            self.model, training.eps_ls, bf16=self.bf16 and not sharded, loss=hooks.loss
        )
        self._learner = distribute(
            learner.train(), self.model, training.sharding, world, bf16=self.bf16
        )
        self.optimizers = hooks.build_optimizers(self._learner.named_parameters(), training)
        self.ema: dict[str, Tensor] = {}  # the moving average of the weights, if there is one

        # The step, captured as a CUDA graph if possible.
        self.graph_obstacle = self._find_graph_obstacle()
        self.graph: GraphedStep | None = None
        if world.device.type == "cuda" and not self.graph_obstacle:
            self.graph = GraphedStep(learner, self.optimizers, training, world.device)

    def _find_graph_obstacle(self) -> str | None:
        """Return why Python must take part in every step, so that it cannot be a CUDA graph."""
        obstacles = {
            "several ranks": self._world.size > 1,
            "training.recompute": self._training.recompute,
            "custom optimizers": self.own_optimizers,
            "a custom loss": self._hooks.loss is not None,
            "rows of different lengths": self.layout == "padded",
        }
        for obstacle, applies in obstacles.items():
            if applies:
                return obstacle
        # Last the model itself: a changed part may run any Python code.
        return deviation(self.model)

    def step(
        self, micro_batches: Sequence[MicroBatch], target_tokens: int, step: int, rate: float
    ) -> StepResult:
        """Take a step with this learning rate."""
        if self.graph is not None:
            result = self.graph(micro_batches, target_tokens, step, rate)
        else:
            result = train_step(
                self._learner,
                self.optimizers,
                micro_batches,
                target_tokens,
                self._training,
                step,
                rate,
                self._world,
            )
        if self._training.ema:
            self._update_ema()
        return result

    def _update_ema(self) -> None:
        """Update the exponential moving average of the weights."""
        weights = {name: weight.detach() for name, weight in self.model.named_parameters()}
        if not self.ema:
            self.ema = {name: weight.clone() for name, weight in weights.items()}
        torch._foreach_lerp_(
            list(self.ema.values()), list(weights.values()), 1 - self._training.ema
        )

    def forget_step(self) -> None:
        """Free the memory of a step that failed, half a gradient included."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if self.graph is not None:
            self.graph.reset()
        torch.cuda.empty_cache()

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to translate with: their average if there is one. All ranks call."""
        return gather(self.ema) or collect(self._learner, self.optimizers)["model"]

    def collect(self) -> Groups:
        """Return everything that a checkpoint contains. All ranks must call."""
        groups = collect(self._learner, self.optimizers)
        if self.ema:
            groups["ema"] = gather(self.ema)
        return groups

    @property
    def precision(self) -> str:
        """The precision of products, as users write it."""
        return "bf16" if self.bf16 else "float32"

    @property
    def own_optimizers(self) -> bool:
        """Whether the optimizers are the user's."""
        return self._hooks.optimizers is not None

    @property
    def groups(self) -> set[str]:
        """The names of the groups that `collect` returns after a step."""
        return {"model", "optimiser"} | ({"ema"} if self._training.ema else set())

    def misfit(self, group: str, saved: Mapping[str, TensorType]) -> str | None:
        """Return what in a saved group of tensors does not fit this state, or None."""
        if group == "model":
            return weights_misfit(self.model, saved)
        if group == "ema":
            return average_misfit(self.model, saved)
        if group == "optimiser":
            parameter_groups = sum(len(optimizer.param_groups) for optimizer in self.optimizers)
            standard = not self.own_optimizers
            return optimizer_misfit(
                self.model,
                saved,
                parameter_groups,
                standard=standard,
                complete=standard and self._hooks.model is None,
            )
        return "it is no part of a training state"

    def restore(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the state that `collect` returned."""
        restore(self._learner, self.optimizers, groups)
        if "ema" in groups:
            self.ema = shard_like(groups["ema"], self.model)

    def load_weights(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Take the weights of another model; return the names of those that it does not have.

        Only a custom model may have such weights.
        """
        return load_weights(self._learner, weights, allow_missing=self._hooks.model is not None)


def _uses_bf16(recipe: Recipe, world: World, model: nn.Module) -> bool:
    precision = recipe.training.precision
    if precision != "auto":
        return precision == "bf16"
    if world.device.type == "cuda":
        is_fast = torch.cuda.is_bf16_supported()
    else:
        # On a CPU, parts that someone has changed can be much slower in bf16.
        is_cpu = world.device.type == "cpu"
        is_fast = is_cpu and multiplies_bf16() and deviation(model) is None
    return not world.any(not is_fast)  # all ranks use the same precision
