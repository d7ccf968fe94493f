"""Pages of HTML that need nothing else: the frame, the tables and the pictures of all reports."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

# The Content-Security-Policy allows inline styles and embedded images, and no scripts.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html_page(title: str, heading: str, body: str, *, subtitle: str = "") -> str:
    """Return a complete page. The body is HTML; everything else is text."""
    style = files("transduce.monitoring").joinpath("report.css").read_text(encoding="utf-8")
    below = f"<p>{escape(subtitle)}</p>" if subtitle else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><header><h1>{escape(heading)}</h1>{below}</header>{body}</body></html>\n"
    )


def html_section(title: str, *parts: str) -> str:
    """Return a section of a page, whose parts are HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table of texts; without a head, it has only rows."""
    header = f"<thead>{_row('th', head)}</thead>" if head else ""
    body = "".join(_row("td", row) for row in rows)
    return f'<div class="scroll"><table>{header}<tbody>{body}</tbody></table></div>'


def html_sample(parts: Iterable[tuple[str, str]]) -> str:
    """Return named texts in any language below each other, the last one the most visible."""
    rows = [f'<dt>{escape(name)}</dt><dd dir="auto">{escape(text)}</dd>' for name, text in parts]
    return f'<dl class="sample">{"".join(rows)}</dl>'


def html_picture(svg: str, caption: str) -> str:
    """Return a figure as an image inside the page, where the page's style does not reach it."""
    data = base64.b64encode(svg.encode()).decode("ascii")
    text = escape(caption)
    image = f'<img style="width:100%" alt="{text}" src="data:image/svg+xml;base64,{data}">'
    return f"<figure><figcaption>{text}</figcaption>{image}</figure>"


def _row(tag: str, values: Iterable[Any]) -> str:
    cells = [f"<{tag}>{escape(str(value))}</{tag}>" for value in values]
    return f"<tr>{''.join(cells)}</tr>"
