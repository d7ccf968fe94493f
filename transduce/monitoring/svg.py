"""Curves as SVG: a chart is a short text that any browser draws without scripts. The page's style colours it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from transduce.monitoring.metrics import Point
from transduce.monitoring.terminal import compact

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 466, 34, 224  # the corners of the plot in the picture
DOTTED = 40  # points at most that are drawn as dots, too
# A curve of a million steps is drawn with its least and greatest value in each of these.
BUCKETS = 300


def chart(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    *,
    from_zero: bool = False,
    logarithmic: bool = False,
) -> str:
    """A picture of named curves over steps; a word in its place where there is nothing to draw.

    Their colours are the style's classes `curve-0`, `curve-1`, ...
    """
    drawn = {
        name: thin([(step, value) for step, value in points if value > 0 or not logarithmic])
        for name, points in curves.items()
    }
    drawn = {name: points for name, points in drawn.items() if points}
    caption = f"<figcaption>{escape(title)}</figcaption>"
    if not drawn:
        return f'<figure>{caption}<p class="none">nothing recorded</p></figure>'
    values = [value for points in drawn.values() for _, value in points]
    last_step = max(points[-1][0] for points in drawn.values())
    low, high = min(values), max(values)
    marks = (
        _powers_of_ten(low, high)
        if logarithmic
        else ticks(0 if from_zero else low, high, outside=True)
    )
    y = _scale(marks[0], marks[-1], BOTTOM, TOP, logarithmic)
    x = _scale(0, last_step, LEFT, RIGHT)
    parts = [_horizontal(mark, y(mark)) for mark in marks]
    parts += [_label(x(step), HEIGHT - 14, compact(step), "middle") for step in ticks(0, last_step)]
    parts += [
        _line(place, [(step, x(step), value, y(value)) for step, value in points])
        for place, points in enumerate(drawn.values())
    ]
    latest = {name: compact(points[-1][1]) for name, points in drawn.items()}
    legend = "".join(
        f'<span class="key curve-{place}">{escape(name)} <b>{value}</b></span>'
        for place, (name, value) in enumerate(latest.items())
    )
    spoken = f"{title} over steps; at the end: {', '.join(f'{name} {value}' for name, value in latest.items())}"
    return (
        f'<figure>{caption}<p class="legend">{legend}</p>'
        f'<svg viewBox="0 {TOP - 14} {WIDTH} {HEIGHT - TOP + 10}" role="img" aria-label="{escape(spoken)}">'
        f"{''.join(parts)}</svg></figure>"
    )


def thin(points: Sequence[Point], buckets: int = BUCKETS) -> list[Point]:
    """At most two points a bucket, its least and its greatest, and the last of all: no spike is lost."""
    if len(points) <= 2 * buckets:
        return list(points)
    kept: list[Point] = []
    for bucket in range(buckets):
        part = points[bucket * len(points) // buckets : (bucket + 1) * len(points) // buckets]
        kept += sorted(
            {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        )
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def ticks(low: float, high: float, *, outside: bool = False, about: int = 4) -> list[float]:
    """Round numbers between two; with `outside` so far that both lie within."""
    spread = high - low or abs(high) or 1.0
    unit = 10.0 ** math.floor(math.log10(spread / about))
    width = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= spread / about)
    first, last = math.ceil(low / width - 1e-9), math.floor(high / width + 1e-9)
    if outside:
        first, last = math.floor(low / width + 1e-9), math.ceil(high / width - 1e-9)
    return [index * width for index in range(first, max(first, last) + 1)]


def _powers_of_ten(low: float, high: float) -> list[float]:
    return [
        10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ]


def _scale(
    low: float, high: float, start: float, end: float, logarithmic: bool = False
) -> Callable[[float], float]:
    measure: Callable[[float], float] = math.log10 if logarithmic else float
    spread = measure(high) - measure(low) or 1.0
    return lambda value: round(start + (end - start) * (measure(value) - measure(low)) / spread, 1)


def _horizontal(value: float, y: float) -> str:
    return f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>' + _label(
        LEFT - 8, y + 4, compact(value), "end"
    )


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(place: int, points: Sequence[tuple[int, float, float, float]]) -> str:
    """(step, x, value, y) of each point: the line, and where they are few a dot on each that says its value."""
    path = " ".join(f"{x},{y}" for _, x, _, y in points)
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="3"><title>step {step:,}: {value:.4g}</title></circle>'
        for step, x, value, y in (points if len(points) <= DOTTED else ())
    )
    return f'<g class="curve-{place}"><polyline points="{path}"/>{dots}</g>'
