"""Line charts as SVG files, with linear or logarithmic axes, in colours that all can tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from transduce.inspection.svg import COLOURS, document, write
from transduce.monitoring.svg import ticks
from transduce.monitoring.terminal import compact

Point = tuple[float, float]

WIDTH, HEIGHT = 600, 340
LEFT, RIGHT, TOP, BOTTOM = 76, 400, 46, 286  # the edges of the plot; the legend is right of it
FAINT = "#ddd"
GREY = "#555"


def line_chart(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    dots_only: bool = False,
) -> str:
    """Return an SVG with named curves; points that an axis cannot show are left out."""
    drawn = {name: _visible(points, log_x, log_y) for name, points in curves.items()}
    points = [point for curve in drawn.values() for point in curve]
    parts = [write(10, 20, title, weight="bold")]
    if not points:
        parts.append(write(10, 60, "nothing measured yet", fill=GREY))
        return document(WIDTH, HEIGHT, parts, title)

    # The axes.
    x_marks = _marks([x for x, _ in points], log_x)
    y_marks = _marks([y for _, y in points], log_y)
    x_of = _scale(x_marks, LEFT, RIGHT, log_x)
    y_of = _scale(y_marks, BOTTOM, TOP, log_y)
    for mark in y_marks:
        y = y_of(mark)
        parts.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" stroke="{FAINT}"/>')
        parts.append(write(LEFT - 8, y + 4, compact(mark), "end", GREY, size=11))
    for mark in x_marks:
        x = x_of(mark)
        parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{BOTTOM}" stroke="{FAINT}"/>')
        label = f"{mark:,.0f}" if 1 <= mark < 1e4 else compact(mark)
        parts.append(write(x, BOTTOM + 18, label, "middle", GREY, size=11))
    parts.append(write((LEFT + RIGHT) / 2, BOTTOM + 40, x_label, "middle", GREY))
    parts.append(write(10, TOP - 10, y_label, fill=GREY, size=11))

    # The curves, and their names beside the plot.
    for index, (name, curve) in enumerate(drawn.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [(x_of(x), y_of(y)) for x, y in curve]
        parts += _curve(places, colour, dots_only)
        y = TOP + 12 + 20 * index
        parts.append(f'<rect x="{RIGHT + 16}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(write(RIGHT + 31, y, name, size=11))
    return document(WIDTH, HEIGHT, parts, title)


def _visible(points: Sequence[Point], log_x: bool, log_y: bool) -> list[Point]:
    """Return the points whose numbers are finite, and positive where an axis is logarithmic."""
    visible = []
    for x, y in points:
        finite = math.isfinite(x) and math.isfinite(y)
        if finite and (x > 0 or not log_x) and (y > 0 or not log_y):
            visible.append((x, y))
    return visible


def _marks(values: Sequence[float], logarithmic: bool) -> list[float]:
    """Return round numbers that enclose the values."""
    if not logarithmic:
        return ticks(min(values), max(values), outside=True)
    powers = sorted({math.log2(value) for value in values})
    if len(powers) > 1 and all(power.is_integer() for power in powers):
        return _powers_of_two(int(powers[0]), int(powers[-1]))
    first = math.floor(math.log10(min(values)))
    last = math.ceil(math.log10(max(values)))
    last = max(last, first + 1)
    step = max(1, (last - first) // 6)
    return [10.0**power for power in range(first, last + step, step)]


def _powers_of_two(first: int, last: int) -> list[float]:
    """Return at most eight powers of two, the last of which may be larger than is asked for."""
    step = -(-(last - first) // 7)
    return [2.0**power for power in range(first, last + step, step)]


def _scale(
    marks: Sequence[float], start: float, end: float, logarithmic: bool
) -> Callable[[float], float]:
    """Return a function from values to coordinates."""
    measure: Callable[[float], float] = math.log10 if logarithmic else float
    low = measure(marks[0])
    spread = measure(marks[-1]) - low or 1.0
    return lambda value: round(start + (end - start) * (measure(value) - low) / spread, 1)


def _curve(places: Sequence[Point], colour: str, dots_only: bool) -> list[str]:
    parts = []
    if not dots_only:
        path = " ".join(f"{x},{y}" for x, y in places)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
    if dots_only or len(places) <= 40:
        parts += [f'<circle cx="{x}" cy="{y}" r="2.6" fill="{colour}"/>' for x, y in places]
    return parts
