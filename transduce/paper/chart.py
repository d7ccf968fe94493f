"""Charts as SVG files, with linear or logarithmic axes, in colours that all can tell apart."""

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
ROW = 18  # the height of a row of `dot_rows`


def line_chart(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
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
    for mark, label in zip(y_marks, _labels(y_marks, log_y), strict=True):
        y = y_of(mark)
        parts.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" stroke="{FAINT}"/>')
        parts.append(write(LEFT - 8, y + 4, label, "end", GREY, size=11))
    parts += _x_axis(x_marks, x_of, BOTTOM, x_label, log_x)
    parts.append(write(10, TOP - 10, y_label, fill=GREY, size=11))

    # The curves, and their names beside the plot.
    for index, (name, curve) in enumerate(drawn.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [(x_of(x), y_of(y)) for x, y in curve]
        parts += [*_curve(places, colour), *_legend(index, name, colour)]
    return document(WIDTH, HEIGHT, parts, title)


def dot_rows(
    title: str, rows: Mapping[str, Sequence[float]], names: Sequence[str], *, x_label: str
) -> str:
    """Return an SVG with a line for each row, and on it a dot for each of its named values."""
    parts = [write(10, 20, title, weight="bold")]
    if not rows:
        parts.append(write(10, 60, "nothing measured yet", fill=GREY))
        return document(WIDTH, HEIGHT, parts, title)
    values = [value for row in rows.values() for value in row]
    marks = ticks(min(values), max(values), outside=True)
    x_of = _scale(marks, LEFT, RIGHT, logarithmic=False)
    bottom = TOP + ROW * len(rows)
    parts += _x_axis(marks, x_of, bottom, x_label, logarithmic=False)
    for index, (row, dots) in enumerate(rows.items()):
        y = TOP + ROW * (index + 0.5)
        ends = [x_of(min(dots)), x_of(max(dots))]
        parts.append(f'<line x1="{ends[0]}" x2="{ends[1]}" y1="{y}" y2="{y}" stroke="{GREY}"/>')
        parts.append(write(LEFT - 8, y + 4, row, "end", size=10))
        for value, colour in zip(dots, COLOURS, strict=False):
            parts.append(_dot((x_of(value), y), colour))
    for index, name in enumerate(names):
        parts += _legend(index, name, COLOURS[index])
    return document(WIDTH, bottom + 54, parts, title)


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


def _labels(marks: Sequence[float], logarithmic: bool) -> list[str]:
    """Return the marks of an axis as texts, with the decimals that tell them apart."""
    largest = max(map(abs, marks))
    if largest >= 1e15:
        return [f"{mark:.3g}".replace("e+", "e") for mark in marks]
    if logarithmic or largest >= 1e6 or len(marks) == 1:
        return [f"{mark:,.0f}" if 1 <= mark < 1e5 else compact(mark) for mark in marks]
    decimals = max(0, -math.floor(math.log10(marks[1] - marks[0]) + 1e-9))
    return [f"{mark + 0.0:,.{decimals}f}" for mark in marks]


def _scale(
    marks: Sequence[float], start: float, end: float, logarithmic: bool
) -> Callable[[float], float]:
    """Return a function from values to coordinates."""
    measure: Callable[[float], float] = math.log10 if logarithmic else float
    low = measure(marks[0])
    spread = measure(marks[-1]) - low or 1.0
    return lambda value: round(start + (end - start) * (measure(value) - low) / spread, 1)


def _x_axis(
    marks: Sequence[float],
    x_of: Callable[[float], float],
    bottom: float,
    name: str,
    logarithmic: bool,
) -> list[str]:
    parts = []
    for mark, label in zip(marks, _labels(marks, logarithmic), strict=True):
        x = x_of(mark)
        parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}" stroke="{FAINT}"/>')
        parts.append(write(x, bottom + 18, label, "middle", GREY, size=11))
    parts.append(write((LEFT + RIGHT) / 2, bottom + 40, name, "middle", GREY))
    return parts


def _curve(places: Sequence[Point], colour: str) -> list[str]:
    path = " ".join(f"{x},{y}" for x, y in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>']
    if len(places) <= 40:
        parts += [_dot(place, colour) for place in places]
    return parts


def _dot(place: Point, colour: str) -> str:
    x, y = place
    return f'<circle cx="{x}" cy="{y}" r="2.6" fill="{colour}"/>'


def _legend(index: int, name: str, colour: str) -> list[str]:
    """Return a line of the legend, right of the plot."""
    y = TOP + 12 + 20 * index
    square = f'<rect x="{RIGHT + 16}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
    return [square, write(RIGHT + 31, y, name, size=11)]
