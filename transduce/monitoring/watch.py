"""`transduce watch`: the curves of a run in the terminal, redrawn while it goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from transduce.monitoring.metrics import FILE_NAME, History, Point, read_metrics
from transduce.monitoring.terminal import clock, compact, fitting, printable, step_figures
from transduce.storage.run_lock import is_held

PAUSE = 1.0  # seconds between two looks at the file
MARGIN = 8  # columns for the numbers beside a plot
STYLES = ("cyan", "yellow")
Curve = tuple[str, Sequence[Point]]  # its name and its points
# The bit of each of a braille character's 4 x 2 dots, from the top.
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def watch(run: Path, *, once: bool = False) -> None:
    """Draw the run until it ends or the user has seen enough (Ctrl-C); one frame where there is no terminal."""
    console = Console(highlight=False)
    history = read_metrics(run)
    if once or not console.is_terminal or console.is_dumb_terminal:
        console.print(frame(run, history, console), soft_wrap=False)
        return
    seen = 0
    with Live(frame(run, history, console), console=console, auto_refresh=False) as live:
        try:
            while history.status == "running":
                time.sleep(PAUSE)
                # A long history is not read for nothing.
                if seen != (size := (run / FILE_NAME).stat().st_size):
                    seen, history = size, read_metrics(run)
                live.update(frame(run, history, console), refresh=True)
        except KeyboardInterrupt:
            pass  # how one leaves


def frame(run: Path, history: History, console: Console) -> RenderableType:
    """One look at the run, as high as the terminal at most: where it is, loss, BLEU, what happened last."""
    height = max(min((console.height - 16) // 2, 14), 4)
    size = (max(min(console.width, 120) - MARGIN - 2, 8), height)
    ascii_only = console.options.ascii_only
    parts: list[RenderableType] = [*_headline(run, history, console.width), ""]
    parts += plot(
        "loss without smoothing", [*history.losses().items()], size, history.step, ascii_only
    )
    if bleu := history.curve("validation", "bleu"):
        parts += ["", *plot("BLEU", [("validation", bleu)], size, history.step, ascii_only)]
    else:
        parts += ["", history.no_translations]
    events = history.of("event")[-3:]
    lines = [
        f"step {event['step']:,}  {event['event']}: {printable(event['message'])}"
        for event in events
    ]
    parts += ["", *(Text(line, overflow="ellipsis", no_wrap=True) for line in lines)]
    return Group(*(Text(part) if isinstance(part, str) else part for part in parts))


def _headline(run: Path, history: History, width: int) -> list[str]:
    total = history.attempt.get("total_steps", 0)
    state: str = history.status
    age = time.time() - history.last["time"]
    if state == "running" and (held := is_held(run)) is not True:
        state = (
            "killed"
            if held is False
            else f"no sign of life for {clock(age)}"
            if age > 60
            else state
        )
    done = f" ({history.step / total:.0%})" if total else ""
    lines = [
        f"{run.resolve().name}: {state}, step {history.step:,} of {total:,}{done}, {clock(history.seconds)} so far"
    ]
    if not (steps := history.of("step")):
        return [*lines, "no step reported yet"]
    if state == "running":
        lines[0] += f", {clock(steps[-1]['seconds_left'] - age)} left"
    return [*lines, fitting(step_figures(steps[-1]), width)]


def plot(
    title: str,
    curves: Sequence[Curve],
    size: tuple[int, int],
    last_step: int,
    ascii_only: bool = False,
) -> list[Text]:
    """Lines of text: the title with each curve's last value, the plot with its limits, the steps below."""
    heading = Text(title, style="bold")
    drawn = [
        (name, points, style)
        for (name, points), style in zip(curves, STYLES, strict=False)
        if points
    ]
    if not drawn:
        return [heading.append(": nothing to draw yet", style="not bold")]
    for name, points, style in drawn:
        heading.append(f"  {name} {compact(points[-1][1])}", style=f"not bold {style}")
    values = [value for _, points, _ in drawn for _, value in points]
    limits = (min(values), max(values))
    layers = [(_dots(points, size, last_step, limits), style) for _, points, style in drawn]
    width, height = size
    lines = []
    for row in range(height):
        label = {0: compact(limits[1]), height - 1: compact(limits[0])}.get(row, "")
        line = Text(f"{label:>{MARGIN}} ")
        for column in range(width):
            here = [
                (cells[row, column], style) for cells, style in layers if (row, column) in cells
            ]
            line.append(
                _character([bits for bits, _ in here], ascii_only),
                style=here[-1][1] if here else "",
            )
        lines.append(line)
    return [
        heading,
        *lines,
        Text(f"{'':>{MARGIN}} 0{f'step {last_step:,}':>{width - 1}}", style="dim"),
    ]


def _dots(
    points: Sequence[Point], size: tuple[int, int], last_step: int, limits: tuple[float, float]
) -> dict[tuple[int, int], int]:
    """The braille dots on the line through the points: (row, column) of a character -> its bits."""
    width, height = 2 * size[0] - 1, 4 * size[1] - 1
    low, high = limits
    places = [
        (
            round(step / max(last_step, 1) * width),
            round((high - value) / (high - low or 1.0) * height),
        )
        for step, value in points
    ]
    cells: dict[tuple[int, int], int] = {}
    for (x0, y0), (x1, y1) in zip(places[:1] + places, places, strict=False):
        moves = max(abs(x1 - x0), abs(y1 - y0), 1)
        for move in range(moves + 1):
            x, y = round(x0 + (x1 - x0) * move / moves), round(y0 + (y1 - y0) * move / moves)
            cell = (y // 4, x // 2)
            cells[cell] = cells.get(cell, 0) | DOTS[y % 4][x % 2]
    return cells


def _character(layers: Sequence[int], ascii_only: bool) -> str:
    """What the dots of all curves in one place look like."""
    bits = 0
    for layer in layers:
        bits |= layer
    return " " if not bits else "*" if ascii_only else chr(0x2800 + bits)
