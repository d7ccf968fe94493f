"""Line charts as SVG, which any browser draws without scripts. The style sheet colours them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from transduce.monitoring.metrics import Point
from transduce.monitoring.terminal import compact

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 466, 34, 224  # the edges of the plot in the picture
DOTTED = 40  # the most points of a curve that also get dots
TICKS = 4  # about how many numbers an axis has
BUCKETS = 300  # of a longer curve, only the extremes of this many parts are drawn


def chart(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    *,
    from_zero: bool = False,
    logarithmic: bool = False,
) -> str:
    """Return an HTML figure with named curves over steps, or a note if there are no points.

    The style classes `curve-0`, `curve-1`, ... colour the curves.
    """
    drawn = _drawable(curves, positive=logarithmic)
    caption = f"<figcaption>{escape(title)}</figcaption>"
    if not drawn:
        return f'<figure>{caption}<p class="none">nothing recorded</p></figure>'

    # The axes.
    values = [value for points in drawn.values() for _, value in points]
    last_step = max(points[-1][0] for points in drawn.values())
    if logarithmic:
        marks = _powers_of_ten(min(values), max(values))
    else:
        marks = ticks(0 if from_zero else min(values), max(values), outside=True)
    x = _scale(0, last_step, LEFT, RIGHT)
    y = _scale(marks[0], marks[-1], BOTTOM, TOP, logarithmic)

    # Grid lines, labels and curves.
    parts = [_grid_line(mark, y(mark)) for mark in marks]
    parts += [_label(x(step), HEIGHT - 14, compact(step), "middle") for step in ticks(0, last_step)]
    for index, points in enumerate(drawn.values()):
        parts.append(_curve(index, [(step, x(step), value, y(value)) for step, value in points]))

    # The legend shows the last values; screen readers get them as text.
    latest = {name: compact(points[-1][1]) for name, points in drawn.items()}
    legend = "".join(
        f'<span class="key curve-{index}">{escape(name)} <b>{value}</b></span>'
        for index, (name, value) in enumerate(latest.items())
    )
    last_values = ", ".join(f"{name} {value}" for name, value in latest.items())
    description = escape(f"{title} over steps; at the end: {last_values}")
    view_box = f"0 {TOP - 14} {WIDTH} {HEIGHT - TOP + 10}"
    return (
        f'<figure>{caption}<p class="legend">{legend}</p>'
        f'<svg viewBox="{view_box}" role="img" aria-label="{description}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _drawable(curves: Mapping[str, Sequence[Point]], *, positive: bool) -> dict[str, list[Point]]:
    """Return the curves that have points, thinned; only positive values for a logarithmic axis."""
    drawable = {}
    for name, points in curves.items():
        if positive:
            points = [(step, value) for step, value in points if value > 0]
        if points:
            drawable[name] = thin(points)
    return drawable


def thin(points: Sequence[Point]) -> list[Point]:
    """Return the smallest and the largest point of each bucket, and the last: no spike is lost."""
    if len(points) <= 2 * BUCKETS:
        return list(points)
    # Both extremes of a bucket, in the order of steps.
    kept: list[Point] = []
    for bucket in range(BUCKETS):
        part = points[bucket * len(points) // BUCKETS : (bucket + 1) * len(points) // BUCKETS]
        smallest = min(part, key=lambda point: point[1])
        largest = max(part, key=lambda point: point[1])
        kept += sorted({smallest, largest})
    if kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def ticks(low: float, high: float, *, outside: bool = False) -> list[float]:
    """Return round numbers between two limits; with `outside`, numbers that enclose them."""
    # They are 1, 2 or 5 times a power of ten apart.
    distance = (high - low or abs(high) or 1.0) / TICKS
    unit = 10.0 ** math.floor(math.log10(distance))
    width = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= distance)

    if outside:
        first = math.floor(low / width + 1e-9)
        last = math.ceil(high / width - 1e-9)
    else:
        first = math.ceil(low / width - 1e-9)
        last = math.floor(high / width + 1e-9)
    return [index * width for index in range(first, max(first, last) + 1)]


def _powers_of_ten(low: float, high: float) -> list[float]:
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    return [10.0**power for power in range(first, last + 1)]


def _scale(
    low: float, high: float, start: float, end: float, logarithmic: bool = False
) -> Callable[[float], float]:
    """Return a function from values to coordinates that maps low to start and high to end."""
    # Linear in the value or in its logarithm.
    measure: Callable[[float], float] = math.log10 if logarithmic else float
    spread = measure(high) - measure(low) or 1.0
    return lambda value: round(start + (end - start) * (measure(value) - measure(low)) / spread, 1)


def _grid_line(value: float, y: float) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>'
    return line + _label(LEFT - 8, y + 4, compact(value), "end")


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _curve(index: int, points: Sequence[tuple[int, float, float, float]]) -> str:
    """Return a line through (step, x, value, y) points; few points get dots with their values."""
    path = " ".join(f"{x},{y}" for _, x, _, y in points)
    dots = ""
    if len(points) <= DOTTED:
        dots = "".join(
            f'<circle cx="{x}" cy="{y}" r="3"><title>step {step:,}: {value:.4g}</title></circle>'
            for step, x, value, y in points
        )
    return f'<g class="curve-{index}"><polyline points="{path}"/>{dots}</g>'
