"""Budgets: the paper's recipes with a share of its steps, and the rows of a table on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transduce.config import DataConfig, Recipe, TrainingConfig
from transduce.errors import ConfigError
from transduce.presets import BASE
from transduce.recipe import apply_overrides, differences, update_recipe

REPORTS = 100  # in a run, at least
VALIDATIONS = 10  # in a run; each one also writes the model
EARLY_SAVES = 10  # in a run, before the checkpoints that are averaged


def check_budget(budget: float) -> None:
    """Refuse a budget that is no share of the paper's steps."""
    if not 0 < budget <= 10:
        raise ConfigError(
            f"--budget is {budget:g}; expected a share of the paper's steps above 0 and at most "
            "10, such as 0.1"
        )


def scaled(recipe: Recipe, budget: float) -> Recipe:
    """Return the recipe with a share of its steps.

    Warm-up and the interval of checkpoints shrink alike, so that the average of the last
    checkpoints spans the same share of the training. Other checkpoints only serve to resume, and
    the time of writing them does not shrink with the steps: they are few. Only the loss is
    validated during training; the final model is scored on the whole set.
    """
    training = recipe.training

    def share(steps: int) -> int:
        return max(1, round(steps * budget))

    steps = share(training.steps)
    shorter: TrainingConfig = replace(
        training,
        steps=steps,
        warmup_steps=share(training.warmup_steps),
        save_every=share(training.save_every),
        early_save_every=-(-steps // EARLY_SAVES),
        validate_every=-(-steps // VALIDATIONS),
        report_every=max(1, min(training.report_every, steps // REPORTS)),
        validation_sentences=0,
    )
    return replace(recipe, training=shorter)


def row_recipe(
    row: Recipe, data: DataConfig, budget: float, overrides: Sequence[str] = ()
) -> Recipe:
    """Return the recipe of a row on this text, with a share of the paper's steps.

    The overrides change base, and what distinguishes the row from base is applied on top: with
    `model.d_model=256` all rows get smaller, but N=2 stays N=2.
    """
    base = changed_recipe(BASE, data, budget, overrides)
    tree: dict[str, Any] = {"model": {"vocab_size": base.data.tokenizer.vocab_size}}
    for name, (value, _) in differences(scaled(row, budget), scaled(BASE, budget)).items():
        section, _, setting = name.partition(".")
        if section != "data":
            tree.setdefault(section, {})[setting] = value
    return with_the_papers_rate(update_recipe(base, tree), budget)


def changed_recipe(
    recipe: Recipe, data: DataConfig, budget: float, overrides: Sequence[str]
) -> Recipe:
    """Return a recipe on this text, with a share of its steps and the user's changes."""
    size = data.tokenizer.vocab_size
    shorter = replace(scaled(recipe, budget), data=data)
    sized = replace(shorter, model=replace(shorter.model, vocab_size=size))
    return apply_overrides(sized, overrides)


def with_the_papers_rate(recipe: Recipe, budget: float) -> Recipe:
    """Return the recipe with the peak of Equation 3 for the paper's warm-up.

    A shorter warm-up alone would raise the peak. With it, the schedule is the paper's with its
    time axis compressed.
    """
    training = recipe.training
    if training.schedule != "paper" or training.learning_rate is not None:
        return recipe
    if training.warmup_steps != scaled(BASE, budget).training.warmup_steps:
        return recipe  # the user's own warm-up, with the rate of Equation 3
    peak = (recipe.model.d_model * BASE.training.warmup_steps) ** -0.5
    return replace(recipe, training=replace(training, learning_rate=peak))
