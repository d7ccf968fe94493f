"""§5.3: Adam, and the learning rate of Equation 3; with alternatives that are common today."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.config import Recipe, TrainingConfig
from transduce.model.layers import is_layer_matrix
from transduce.training.muon import Muon


def build_optimizers(
    parameters: Iterable[tuple[str, nn.Parameter]], training: TrainingConfig
) -> list[Optimizer]:
    """Return one optimizer, or two with Muon, which takes only the matrices inside the layers.

    On a GPU the learning rate is a tensor that `set_learning_rate` fills, so that a captured CUDA
    graph sees each new value.
    """
    named = list(parameters)
    if training.optimizer != "muon":
        return [_adam([weight for _, weight in named], training)]

    # Muon orthogonalizes matrices; embeddings, biases and norms stay with Adam.
    matrices = [weight for name, weight in named if is_layer_matrix(name, weight)]
    rest = [weight for name, weight in named if not is_layer_matrix(name, weight)]
    muon = Muon(matrices, _first_rate(matrices), training.weight_decay)
    return [muon, _adam(rest, training)]


def _adam(parameters: list[nn.Parameter], training: TrainingConfig) -> Optimizer:
    kind = torch.optim.Adam if training.optimizer == "adam" else torch.optim.AdamW
    return kind(
        parameters,
        lr=_first_rate(parameters),
        betas=(training.beta_1, training.beta_2),
        eps=training.eps,
        weight_decay=training.weight_decay,
        fused=True,
        capturable=parameters[0].is_cuda,
    )


def _first_rate(parameters: list[nn.Parameter]) -> float | Tensor:
    return torch.zeros((), device=parameters[0].device) if parameters[0].is_cuda else 0.0


def set_learning_rate(optimizers: list[Optimizer], rate: float) -> None:
    """Set the learning rate of every parameter group of every optimizer."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def learning_rate(recipe: Recipe, step: int) -> float:
    """Return the rate of step 1, 2, 3, ...: linear warm-up to the peak, then a decay.

    paper         proportional to 1/sqrt(step); without training.learning_rate it is Equation 3,
                  d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)
    stable-decay  constant until the last fifth of the steps, then linear to zero
    cosine        half a cosine to zero at the last step
    """
    training = recipe.training
    warmup = training.warmup_steps
    peak = peak_rate(recipe)

    # Warm-up.
    if step < warmup:
        return peak * step / warmup
    if training.schedule == "paper":
        return peak * math.sqrt(warmup / step)

    # Decay towards zero at the last step.
    steps_left = max(training.steps - step, 0)
    if training.schedule == "cosine":
        decay_steps = max(training.steps - warmup, 1)
        return peak * 0.5 * (1 - math.cos(math.pi * steps_left / decay_steps))
    return peak * min(1.0, steps_left / max(training.steps / 5, 1))


def peak_rate(recipe: Recipe) -> float:
    """Return the learning rate at the end of the warm-up."""
    training = recipe.training
    # Equation 3 at step = warmup_steps.
    return training.learning_rate or (recipe.model.d_model * training.warmup_steps) ** -0.5
