"""Parts of the figures of attention: text, colours, and the SVG file around them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from transduce.inspection.heads import Kind

# Colours that people with any colour vision can tell apart (Okabe and Ito, 2008).
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a800", "#555555",
)  # fmt: skip
TITLES: dict[Kind, str] = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Encoder-decoder attention",
}
_STYLE = "font-family:Helvetica,Arial,sans-serif;font-size:13px"


def write(
    x: float,
    y: float,
    text: str,
    anchor: str = "start",
    fill: str = "#111",
    *,
    weight: str = "normal",
    size: int = 13,
) -> str:
    """Return a line of text at (x, y)."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" '
        f'font-weight="{weight}" font-size="{size}">{escape(text)}</text>'
    )


def document(width: float, height: float, parts: Sequence[str], description: str) -> str:
    """Return a complete SVG file with a white background."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(description)}" '
        f'style="{_STYLE}"><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
