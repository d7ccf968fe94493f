"""What a run reports before its first step: its settings, how it runs, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from transduce.config import Recipe, TrainingConfig
from transduce.data.suggestions import suggest_preset
from transduce.describe import count_flops
from transduce.presets import preset
from transduce.training.learning import Learning

EFFICIENCY = 0.5  # the share of the speed of a matrix product that training reaches
MANY_EPOCHS = 150  # on little text, more do not help
LONG = 6 * 3_600  # seconds


def settings_events(
    recipe: Recipe, learning: Learning, device: torch.device
) -> Iterator[tuple[str, str]]:
    """Yield events, (kind, message), about the settings and what follows from them."""
    for advice in settings_advice(recipe.training):
        yield "advice", advice
    if device.type == "cuda":
        graph = "the step is one CUDA graph"
        if learning.graph_obstacle:
            graph = f"no CUDA graph: {learning.graph_obstacle}"
        yield "kernels", f"{learning.acceleration}; {graph}"
    if learning.own_optimizers:
        names = ", ".join(type(optimizer).__name__ for optimizer in learning.optimizers)
        yield "advice", f"the schedule sets the learning rate of {names}; its own lr is ignored"


def settings_advice(training: TrainingConfig) -> Iterator[str]:
    """Yield advice about settings that contradict each other."""
    if training.warmup_steps > training.steps:
        yield (
            f"training.warmup_steps is {training.warmup_steps:,}, but training.steps is only "
            f"{training.steps:,}, so the learning rate never reaches its peak; lower warmup_steps"
        )
    if training.ema and training.average_checkpoints > 1:
        yield (
            "training.ema is on, so the moving average becomes the model and checkpoints are not "
            "averaged; set training.average_checkpoints=1, or training.ema=0 to average them"
        )


def plan(recipe: Recipe, pairs: int, epochs: float, flops_per_second: float) -> str:
    """Return how many epochs a run has, how long it takes about, and what would suit the text.

    Args:
        recipe: The recipe of the run.
        pairs: The number of training pairs.
        epochs: How often the run sees each of them.
        flops_per_second: The speed of a matrix product here.
    """
    training = recipe.training
    seconds = _total_flops(recipe) / (EFFICIENCY * flops_per_second)
    message = (
        f"{training.steps:,} steps are {_rounded(epochs)} epochs of {pairs:,} pairs, and take "
        f"about {_duration(seconds)} here"
    )

    # Something smaller, if this is far too much for so little text.
    name = suggest_preset(pairs)
    smaller = preset(name)
    smaller_seconds = _total_flops(smaller) / (EFFICIENCY * flops_per_second)
    if epochs > MANY_EPOCHS and seconds > LONG and smaller_seconds < seconds / 2:
        message += (
            f'; so little text suits preset = "{name}" ({smaller.training.steps:,} steps of '
            f"{smaller.training.tokens_per_step:,} tokens, about {_duration(smaller_seconds)}), "
            "which transduce new FOLDER writes with a vocabulary that fits"
        )
    return message


def _total_flops(recipe: Recipe) -> float:
    training = recipe.training
    return count_flops(recipe.model).training * training.tokens_per_step * training.steps


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _duration(seconds: float) -> str:
    """Return a duration in the unit in which it is easiest to imagine: 3 minutes, 20 days."""
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1.5 else "a second"
