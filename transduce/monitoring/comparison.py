"""`transduce compare`: several runs in one table, with their curves on top of each other."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce.errors import InputError
from transduce.monitoring.metrics import History, read_metrics
from transduce.monitoring.terminal import clock, compact
from transduce.monitoring.watch import MARGIN, STYLES, plot

# The words of a header are on two lines, so that the table fits into a terminal of 80 columns.
HEADERS = ("status", "steps", "best\nBLEU", "at", "best\nloss", "test\nBLEU", "time", "tokens\n/s")


def compare_runs(runs: Sequence[Path], console: Console) -> None:
    """Print a table of the runs, and the curves of their validation loss and BLEU."""
    if not 2 <= len(runs) <= len(STYLES):
        raise InputError(
            f"{len(runs)} runs are given; expected 2 to {len(STYLES)}: transduce compare RUN RUN"
        )
    for run in runs:
        if runs.count(run) > 1:
            raise InputError(f"{run} is given twice; give each run once")
    histories = {str(run): read_metrics(run) for run in runs}
    console.print(_table(histories))
    for warning in _warnings(histories):
        console.print(Text(warning), soft_wrap=True)

    # The curves, one colour for each run.
    size = (max(min(console.width, 120) - MARGIN - 2, 8), 10)
    last_step = max(history.step for history in histories.values())
    for title, name in (("validation loss", "loss"), ("validation BLEU", "bleu")):
        curves = [(run, history.curve("validation", name)) for run, history in histories.items()]
        ascii_only = console.options.ascii_only
        for line in plot(title, curves, size, last_step, ascii_only):
            console.print(line, soft_wrap=False)
        console.print()


def _warnings(histories: dict[str, History]) -> list[str]:
    """Return what the user should know before comparing the runs."""
    lines = [line for run, history in histories.items() for line in history.damage(Path(run))]
    texts = {_validation_text(history) for history in histories.values()}
    if len(texts - {None}) > 1:
        lines.append(
            "the runs name different validation text: their losses and BLEU cannot be compared"
        )
    return lines


def _validation_text(history: History) -> str | None:
    """Return the part of a run's recipe that names its validation text; None if it is not known."""
    try:
        data = tomllib.loads(history.attempt.get("recipe", "")).get("data", {})
        return json.dumps(data["validation"], default=str)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return None  # the run is older, or the record was edited


def _table(histories: dict[str, History]) -> Table:
    """Return one row for each run; long names of runs are folded, all else keeps its width."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    for header in HEADERS:
        table.add_column(header, no_wrap=True)
    for run, history in histories.items():
        # The run's best scores and its mean speed, as far as it has any.
        best = history.best
        validations = [*history.curve("validation", "loss"), *history.curve("average", "loss")]
        losses = [value for _, value in validations]
        tests = [value for _, value in history.curve("test", "bleu")]
        speeds = [value for _, value in history.curve("step", "target_tokens_per_second")]

        table.add_row(
            Text(run),
            history.status,
            f"{history.step:,}",
            f"{best['bleu']:.1f}" if best and best["bleu"] is not None else "",
            _origin(history),
            f"{min(losses):.3f}" if losses else "",
            f"{tests[-1]:.1f}" if tests else "",
            clock(history.seconds),
            compact(sum(speeds) / len(speeds)) if speeds else "",
        )
    return table


def _origin(history: History) -> str:
    best = history.best
    if not best:
        return ""
    return "average" if best["kind"] == "average" else f"{best['step']:,}"
