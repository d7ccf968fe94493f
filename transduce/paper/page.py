"""Pages of results: sections with text, tables and figures, as Markdown, HTML or plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from transduce.monitoring.html import html_page, html_picture, html_section, html_table

Cells = Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table of texts. The first column names the rows."""

    head: Cells
    rows: Sequence[Cells]

    def to_text(self) -> str:
        """Return the table for a terminal, in columns."""
        lines = [self.head, *self.rows]
        columns = zip(*lines, strict=True)
        widths = [max(map(len, cells)) for cells in columns]
        return "\n".join(_columns(line, widths) for line in lines)

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---"] + ["---:"] * (len(self.head) - 1)
        lines = [self.head, rule, *self.rows]
        return "\n".join(f"| {' | '.join(_escaped(line))} |" for line in lines)

    def to_html(self) -> str:
        """Return the table as HTML."""
        return html_table(self.head, self.rows)


@dataclass(frozen=True)
class Figure:
    """A picture, with the name of its file."""

    name: str  # such as table1-time.svg
    caption: str
    svg: str


@dataclass(frozen=True)
class Section:
    """A part of a page: paragraphs, then tables, then figures."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = field(default_factory=tuple)


def to_markdown(title: str, sections: Sequence[Section], figures_folder: str) -> str:
    """Return a page as Markdown, which refers to the files of its figures."""
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.title}")
        parts += section.paragraphs
        parts += [table.to_markdown() for table in section.tables]
        for figure in section.figures:
            parts.append(f"![{figure.caption}]({figures_folder}/{figure.name})")
    return "\n\n".join(parts) + "\n"


def to_html(title: str, sections: Sequence[Section]) -> str:
    """Return a page as one HTML file that needs nothing else."""
    body = "".join(_html_section(section) for section in sections)
    return html_page(title, title, body)


def _html_section(section: Section) -> str:
    parts = [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
    parts += [table.to_html() for table in section.tables]
    if section.figures:
        pictures = [html_picture(figure.svg, figure.caption) for figure in section.figures]
        parts.append(f'<div class="charts">{"".join(pictures)}</div>')
    return html_section(section.title, *parts)


def _columns(line: Cells, widths: Sequence[int]) -> str:
    first = line[0].ljust(widths[0])
    others = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
    return "  ".join([first, *others]).rstrip()


def _escaped(line: Cells) -> list[str]:
    return [cell.replace("|", "\\|") for cell in line]
