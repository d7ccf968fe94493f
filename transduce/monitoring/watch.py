"""`transduce watch`: the curves of a run in the terminal, updated while it trains."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from transduce.errors import printable
from transduce.monitoring.metrics import FILE_NAME, History, Point, read_metrics
from transduce.monitoring.terminal import clock, compact, fit_to_width, step_figures
from transduce.storage.lock import is_run_locked

PAUSE = 1.0  # seconds between two reads of the file
MARGIN = 8  # columns for the numbers beside a plot
STYLES = ("cyan", "yellow", "magenta", "green", "red", "blue")
Curve = tuple[str, Sequence[Point]]  # its name and its points
Cells = dict[tuple[int, int], int]  # (row, column) of a braille character -> the bits of its dots
# The bits of the 4 x 2 dots of a braille character, from the top.
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def watch(run: Path, *, once: bool = False) -> None:
    """Show a run until it ends or the user presses Ctrl-C; without a terminal, print it once."""
    console = Console(highlight=False)
    history = read_metrics(run)
    if once or not console.is_terminal or console.is_dumb_terminal:
        console.print(frame(run, history, console), soft_wrap=False)
        return

    size_read = 0
    with Live(frame(run, history, console), console=console, auto_refresh=False) as live:
        try:
            while history.status == "running":
                time.sleep(PAUSE)
                # A long history is read again only if the file has changed.
                size = (run / FILE_NAME).stat().st_size
                if size != size_read:
                    size_read = size
                    history = read_metrics(run)
                live.update(frame(run, history, console), refresh=True)
        except KeyboardInterrupt:
            pass  # the user has seen enough


def frame(run: Path, history: History, console: Console) -> RenderableType:
    """Return the status, loss, BLEU and last events of a run, to fit the terminal."""
    # The size of each of the two plots.
    height = max(min((console.height - 16) // 2, 14), 4)
    width = max(min(console.width, 120) - MARGIN - 2, 8)
    size = (width, height)
    ascii_only = console.options.ascii_only
    last_step = history.step

    # Status and figures, the curves of the losses, the curve of BLEU, the last events.
    headline = [*_headline(run, history, console.width), *history.damage(run)]
    parts: list[RenderableType] = [Text(line) for line in headline]
    parts.append(Text())
    losses = [*history.losses().items()]
    parts += plot("loss", losses, size, last_step, ascii_only)

    parts.append(Text())
    bleu = history.curve("validation", "bleu")
    if bleu:
        parts += plot("BLEU", [("validation", bleu)], size, last_step, ascii_only)
    else:
        parts.append(Text(history.no_translations))

    parts.append(Text())
    for event in history.of("event")[-3:]:
        line = f"step {event['step']:,}  {event['event']}: {printable(event['message'])}"
        parts.append(Text(line, overflow="ellipsis", no_wrap=True))
    return Group(*parts)


def _headline(run: Path, history: History, width: int) -> list[str]:
    age = time.time() - history.last["time"]
    status = _status(run, history, age)
    step = history.step
    total = history.attempt.get("total_steps", 0)
    share = f" ({step / total:.0%})" if total else ""
    # For example "base: running, step 50 of 100 (50%), 3:07 so far, 3:07 left".
    headline = f"{run.resolve().name}: {status}, step {step:,} of {total:,}{share}"
    headline += f", {clock(history.seconds)} so far"

    steps = history.of("step")
    if not steps:
        return [headline, "no step reported yet"]
    if status == "running":
        headline += f", {clock(steps[-1]['seconds_left'] - age)} left"
    return [headline, fit_to_width(step_figures(steps[-1]), width)]


def _status(run: Path, history: History, age: float) -> str:
    """Return the status of a run; its lock shows whether a running one was killed."""
    if history.status != "running":
        return history.status
    # None means that the lock may be on another machine: then only silence is a hint.
    locked = is_run_locked(run)
    if locked is False:
        return "killed"
    if locked is None and age > 60:
        return f"no sign of life for {clock(age)}"
    return "running"


def plot(
    title: str,
    curves: Sequence[Curve],
    size: tuple[int, int],
    last_step: int,
    ascii_only: bool = False,
) -> list[Text]:
    """Return a plot as lines of text: title and last values, the curves, the steps."""
    drawn = [
        (name, points, style)
        for (name, points), style in zip(curves, STYLES, strict=False)
        if points
    ]
    heading = Text(title, style="bold")
    if not drawn:
        return [heading.append(": no data yet", style="not bold")]
    for name, points, style in drawn:
        heading.append(f"  {name} {compact(points[-1][1])}", style=f"not bold {style}")

    # Draw each curve on its own layer.
    values = [value for _, points, _ in drawn for _, value in points]
    low = min(values)
    high = max(values)
    layers = [(_cells(points, size, last_step, (low, high)), style) for _, points, style in drawn]

    # Combine the layers row by row; the limits are written beside the first and the last row.
    width, height = size
    labels = {0: compact(high), height - 1: compact(low)}
    lines = [heading]
    for row in range(height):
        line = Text(f"{labels.get(row, ''):>{MARGIN}} ")
        for column in range(width):
            bits = 0
            top_style = ""
            for cells, style in layers:
                if (row, column) in cells:
                    bits |= cells[row, column]
                    top_style = style
            line.append(_character(bits, ascii_only), style=top_style)
        lines.append(line)

    last_label = f"step {last_step:,}"
    lines.append(Text(f"{'':>{MARGIN}} 0{last_label:>{width - 1}}", style="dim"))
    return lines


def _cells(
    points: Sequence[Point], size: tuple[int, int], last_step: int, limits: tuple[float, float]
) -> Cells:
    """Return the braille dots of a line through the points."""
    # The position of each point in dots, from the upper left corner.
    width = 2 * size[0] - 1
    height = 4 * size[1] - 1
    low, high = limits
    places = []
    for step, value in points:
        x = round(step / max(last_step, 1) * width)
        y = round((high - value) / (high - low or 1.0) * height)
        places.append((x, y))

    # Connect each point with the one before.
    cells: Cells = {}
    for (x0, y0), (x1, y1) in zip(places[:1] + places, places, strict=False):
        moves = max(abs(x1 - x0), abs(y1 - y0), 1)
        for move in range(moves + 1):
            x = round(x0 + (x1 - x0) * move / moves)
            y = round(y0 + (y1 - y0) * move / moves)
            cell = (y // 4, x // 2)
            cells[cell] = cells.get(cell, 0) | DOTS[y % 4][x % 2]
    return cells


def _character(bits: int, ascii_only: bool) -> str:
    """Return the character with these dots; a star in a terminal without Unicode."""
    if not bits:
        return " "
    return "*" if ascii_only else chr(0x2800 + bits)
