"""§5.3, Equation 3: the learning rate of a step, and two schedules that are common today."""

from __future__ import annotations

import math

from transduce.config import Recipe


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
