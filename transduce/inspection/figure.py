"""A figure of attention as SVG, for papers and notebooks: lines between words, as in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from transduce.errors import InputError
from transduce.inspection.heads import Kind
from transduce.inspection.result import Array, Inspection, Side
from transduce.inspection.svg import COLOURS, TITLES, document, write
from transduce.translation.alignment import alignment_layer

TOP = 58  # where the tokens begin
ROW = 20  # height of a token
SPREAD = 11  # of the lines of all heads at a token
CHARACTER = 7.4  # width of a letter, about
LINES = 190  # width of the space that the lines cross
FAINT = 0.03  # lines of smaller weights are left out


def attention_figure(
    inspection: Inspection,
    kind: Kind = "cross",
    layer: int | None = None,
    heads: Sequence[int] = (),
    word: str | None = None,
) -> str:
    """Return an SVG with a line from each token to the tokens it attends to, as in the paper.

    Args:
        inspection: What to draw.
        kind: Which attention.
        layer: The layer, from 1; by default the one that aligns words best.
        heads: Which heads, from 1, each in its own colour; by default all.
        word: Draw only the lines of this word, such as "its" in the paper's Figure 4.
    """
    layers, h = inspection.attention[kind].shape[:2]
    layer = layer or (alignment_layer(layers) + 1 if kind == "cross" else layers)
    chosen = list(heads) or list(range(1, h + 1))
    for name, number, count in [("layer", layer, layers), *(("head", i, h) for i in chosen)]:
        if not 1 <= number <= count:
            raise InputError(
                f"{name} {number} of {kind} attention does not exist; expected 1 to {count}"
            )
    weights = inspection.attention[kind][layer - 1]  # (h, Q, K)
    queries, keys = _sides(inspection, kind)
    rows = _rows_of(inspection, kind, word)

    # The places of both columns.
    left = 18 + max(len(token.label) for token in queries) * CHARACTER
    right = left + LINES
    width = right + 22 + max(len(token.label) for token in keys) * CHARACTER

    title = f"{TITLES[kind]}, layer {layer} of {layers}"
    parts = [write(10, 20, title, weight="bold"), *_legend(chosen)]
    parts += _lines(weights, chosen, rows, left, right)
    for index, token in enumerate(queries):
        fill = "#111" if index in rows else "#999"
        parts.append(write(left - 10, TOP + ROW * index + 14, token.label, "end", fill))
    for index, token in enumerate(keys):
        parts.append(write(right + 10, TOP + ROW * index + 14, token.label))
    parts += _word_marks(queries, left - 5) + _word_marks(keys, right + 5)
    if word is not None:
        parts += _squares(weights, chosen, rows, width)
        width += 10 + 13 * len(chosen)
    height = TOP + ROW * max(len(queries), len(keys)) + 8
    described = f"{title}: {inspection.text} - {inspection.translation}"
    return document(
        max(width, 30 + 7.5 * len(title), 64 + 30 * len(chosen)), height, parts, described
    )


class _Token(NamedTuple):
    """A token in a figure."""

    label: str
    word: int | None


def notebook_html(inspection: Inspection) -> str:
    """Return what a notebook shows: both texts, notices, and the attention to the source."""
    notices = "".join(f"<li>{escape(notice)}</li>" for notice in inspection.notices)
    return (
        f"<p>{escape(inspection.text)}<br><b>{escape(inspection.translation)}</b></p>"
        f"{f'<ul>{notices}</ul>' if notices else ''}{attention_figure(inspection)}"
    )


def _sides(inspection: Inspection, kind: Kind) -> tuple[list[_Token], list[_Token]]:
    """Return the tokens of queries and keys."""
    source = [_Token(token.text, token.word) for token in inspection.source.tokens]
    target = [_Token(token.text, token.word) for token in inspection.target.tokens]
    if kind == "encoder":
        return source, source
    return target, (source if kind == "cross" else [_Token("<start>", None), *target[:-1]])


def _rows_of(inspection: Inspection, kind: Kind, word: str | None) -> list[int]:
    """Return the queries to draw: all, or the tokens of one word."""
    side: Side = inspection.source if kind == "encoder" else inspection.target
    if word is None:
        return list(range(len(side.tokens)))
    found = {index for index, text in enumerate(side.words) if text == word}
    if not found:
        raise InputError(
            f"the word {word!r} is not among the queries of {kind} attention; expected one of "
            f"{', '.join(dict.fromkeys(side.words))}"
        )
    return [index for index, token in enumerate(side.tokens) if token.word in found]


def _legend(chosen: Sequence[int]) -> list[str]:
    """Return a coloured square with its number for each head."""
    parts = [write(10, 42, "head" if len(chosen) == 1 else "heads", fill="#555")]
    for place, head in enumerate(chosen):
        x = 54 + 30 * place
        parts.append(f'<rect x="{x}" y="32" width="11" height="11" fill="{_colour(head)}"/>')
        parts.append(write(x + 15, 42, str(head), fill="#555"))
    return parts


def _lines(
    weights: Array, chosen: Sequence[int], rows: Sequence[int], left: float, right: float
) -> list[str]:
    """Return one line for each weight that can be seen; the stronger, the darker and thicker."""
    parts = []
    for place, head in enumerate(chosen):
        # Heads that look at the same place are drawn side by side.
        shift = TOP + ROW / 2 + SPREAD * (place - (len(chosen) - 1) / 2) / len(chosen)
        drawn = []
        for query in rows:
            for key, weight in enumerate(weights[head - 1, query].tolist()):
                if weight >= FAINT:
                    strength = min(weight, 1.0)
                    y1 = ROW * query + shift
                    y2 = ROW * key + shift
                    drawn.append(
                        f'<line x1="{left:.1f}" y1="{y1:.1f}" x2="{right:.1f}" y2="{y2:.1f}" '
                        f'stroke-opacity="{strength:.2f}" '
                        f'stroke-width="{0.5 + 1.8 * strength:.1f}"/>'
                    )
        parts.append(f'<g stroke="{_colour(head)}">{"".join(drawn)}</g>')
    return parts


def _word_marks(tokens: Sequence[_Token], x: float) -> list[str]:
    """Return a bar beside the tokens of each word that has several."""
    parts = []
    for index, (token, following) in enumerate(pairwise(tokens)):
        if token.word is not None and token.word == following.word:
            y = TOP + ROW * index + 5
            height = ROW + 10
            parts.append(f'<rect x="{x - 1:.1f}" y="{y}" width="2" height="{height}" fill="#bbb"/>')
    return parts


def _squares(weights: Array, chosen: Sequence[int], rows: Sequence[int], x: float) -> list[str]:
    """Return a square for each key and head: how much attention the chosen queries pay to it."""
    parts = []
    means = weights[:, list(rows)].mean(1)  # (h, K)
    for place, head in enumerate(chosen):
        for key, weight in enumerate(means[head - 1].tolist()):
            parts.append(
                f'<rect x="{x + 13 * place:.1f}" y="{TOP + ROW * key + 4}" width="12" height="12" '
                f'fill="{_colour(head)}" fill-opacity="{min(max(weight, 0.0), 1.0):.2f}" '
                'stroke="#ddd" stroke-width="0.5"/>'
            )
    return parts


def _colour(head: int) -> str:
    return COLOURS[(head - 1) % len(COLOURS)]
