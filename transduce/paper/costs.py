"""What the rows of a table would cost: steps, FLOPs and time, before anything is trained."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from transduce.describe import count_flops, count_parameters
from transduce.monitoring.terminal import clock
from transduce.paper.experiment import Row
from transduce.paper.flops import count_training_flops
from transduce.paper.page import Table
from transduce.paper.results import Result, changed_settings, find_result, parse_recipe

UNKNOWN = "?"
DONE = "done"


def cost_table(rows: Sequence[Row], out: Path, tokens_per_second: float | None) -> Table:
    """Return a table of what each row costs.

    The time comes from `tokens_per_second`, the speed of the first row in target tokens, or from
    rows that were measured before; other rows are assumed to reach the same FLOPs per second. It is
    that of the steps alone. The disk is that of checkpoints, which are removed after each row.
    """
    found = {row.name: find_result(out, row.part, row.name) for row in rows}
    measured = {name: result for name, result in found.items() if result is not None}
    speed = _flops_per_second(rows, measured, tokens_per_second)

    lines = []
    total_seconds = 0.0
    for row in rows:
        training = row.recipe.training
        flops = flops_of(row)
        seconds = flops / speed if speed else None
        state = _state(row, found[row.name])
        if seconds is not None and state != DONE:
            total_seconds += seconds
        tokens = training.steps * training.tokens_per_step
        disk = f"{checkpoint_bytes(row) / 1e9:.1f} GB"
        lines.append(
            (row.name, f"{training.steps:,}", f"{tokens:,}", f"{flops:.2g}", clock(seconds),
             disk, state)
        )  # fmt: skip
    total = clock(total_seconds) if speed else UNKNOWN
    lines.append(("in all, still to do", "", "", "", total, "", ""))
    return Table(("row", "steps", "target tokens", "FLOPs", "time", "disk", "state"), lines)


def _state(row: Row, result: Result | None) -> str:
    """Return whether a row is done; a result of other settings is not one of this row."""
    if result is None:
        return "to do"
    # Whether its text is the same is only known after all of it has been read.
    changed = changed_settings(parse_recipe(result), row.recipe, is_same_text=True)
    return "other settings" if changed else DONE


def checkpoint_bytes(row: Row) -> int:
    """Return what the checkpoints of a row take on the disk while it trains."""
    config = row.recipe.model
    if row.model is None:
        parameters = count_parameters(config)
    else:
        with torch.device("meta"):
            parameters = sum(weight.numel() for weight in row.model(config).parameters())
    # Weights and two moments of Adam in float32; one more checkpoint while it is written.
    return 12 * parameters * (row.recipe.training.keep_checkpoints + 1)


def flops_of(row: Row) -> float:
    """Return the FLOPs of training a row."""
    training = row.recipe.training
    if row.model is None:
        per_token = count_flops(row.recipe.model).training
    else:
        per_token = count_training_flops(row.model, row.recipe.model)
    return per_token * training.steps * training.tokens_per_step


def _flops_per_second(
    rows: Sequence[Row], measured: Mapping[str, Result], tokens_per_second: float | None
) -> float | None:
    """Return the assumed speed, or None if nothing is known."""
    if tokens_per_second:
        training = rows[0].recipe.training
        tokens = training.steps * training.tokens_per_step
        return tokens_per_second * flops_of(rows[0]) / tokens
    results = [result for result in measured.values() if result.flops and result.seconds]
    speeds = [(result.flops or 0) / result.seconds for result in results]
    return statistics.median(speeds) if speeds else None
