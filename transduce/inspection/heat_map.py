"""A heat map of all heads as SVG: how much a test set changes when each is removed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from transduce.inspection.heads import Kind
from transduce.inspection.result import Array
from transduce.inspection.svg import TITLES, document, write

CELL = 44  # width of a square
ROW = 26  # height of a layer


def heat_map(title: str, note: str, changes: Mapping[Kind, Array]) -> str:
    """Return an SVG with one square for each head; the more its removal changes, the darker.

    Args:
        title: The heading, which says what the numbers are.
        note: The line below it.
        changes: Of each kind, an array (layers, h). Harm is positive.
    """
    largest = max(float(np.abs(values).max(initial=0)) for values in changes.values()) or 1.0
    parts = [write(10, 20, title, weight="bold"), write(10, 40, note, fill="#555")]

    # One block of squares for each kind of attention, from top to bottom.
    top = 78
    width = 0.0
    for kind, values in changes.items():
        layers, h = values.shape
        parts.append(write(10, top, TITLES[kind], weight="bold"))
        for index in range(h):
            x = 74 + CELL * index + CELL / 2
            parts.append(write(x, top + 20, f"head {index + 1}", "middle", "#555", size=10))

        # A row of squares for each layer.
        for (layer, index), value in np.ndenumerate(values):
            x = 74 + CELL * index
            y = top + 26 + ROW * layer
            parts.append(_cell(x, y, CELL - 2, 24, float(value), largest))
        parts += [
            write(66, top + 43 + ROW * layer, f"layer {layer + 1}", "end", "#555")
            for layer in range(layers)
        ]
        width = max(width, 86 + CELL * h)
        top += ROW * layers + 62
    return document(max(width, 30 + 7.5 * len(title)), top - 28, parts, title)


def _cell(x: float, y: float, width: float, height: float, value: float, largest: float) -> str:
    """Return a square with its value: orange where removal harms, blue where it helps."""
    strength = min(abs(value) / largest, 1.0)
    colour = "#d55e00" if value >= 0 else "#0072b2"
    fill = "#fff" if strength > 0.6 else "#111"
    label = f"{value:+.3f}" if abs(value) < 0.9995 else f"{value:+.1f}"
    if abs(value) < 0.0005:
        label = "0"
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}" '
        f'fill-opacity="{strength:.3f}" stroke="#ddd"/>'
        + write(x + width / 2, y + 16, label, "middle", fill, size=11)
    )
