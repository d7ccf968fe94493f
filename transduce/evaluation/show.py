"""A report for people: tables in the terminal, Markdown, or a page of HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape

from transduce.evaluation.breakdown import WorstSentence
from transduce.evaluation.figure import length_chart
from transduce.evaluation.report import Report, SystemReport
from transduce.evaluation.tables import Table, inspection, tables
from transduce.monitoring.html import (
    html_page,
    html_picture,
    html_sample,
    html_section,
    html_table,
)


def print_report(report: Report) -> None:
    """Print the tables and the worst sentences."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200)
    for table in tables(report):
        print_table(table, console)
    for index, system in enumerate(report.systems):
        for number, sentence in enumerate(system.worst):
            if number == 0:
                if index:
                    console.print()
                console.print(f"Worst sentences of {system.name}", style="bold", markup=False)
            lines = [
                f"line {sentence.line:,}, chrF++ {sentence.chrf:.1f}",
                f"  source       {sentence.source}",
                f"  reference    {sentence.reference}",
                f"  translation  {sentence.hypothesis}",
                f"  {inspection(system, sentence)}",
            ]
            for line in lines:
                console.print(line, highlight=False, markup=False, soft_wrap=True)


def print_table(table: Table, console: object = None) -> None:
    """Print a table in the terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    if not isinstance(console, Console):
        console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200)
    console.print(Text(table.title, "bold"), highlight=False)
    drawn = RichTable(box=None, pad_edge=False)
    for name in table.header:
        drawn.add_column(Text(name))
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn, highlight=False)
    for note in table.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    console.print()


def to_markdown(report: Report) -> str:
    """Return the report as Markdown, with a heading for each table."""
    lines = ["# Scores", ""]
    for table in tables(report):
        lines += markdown_table(table)
    for system in report.systems:
        if system.worst:
            lines += [f"## Worst sentences of {_escape(system.name)}", ""]
        for sentence in system.worst:
            lines += [
                f"**Line {sentence.line:,}**, chrF++ {sentence.chrf:.1f}",
                "",
                f"- source: {_escape(sentence.source)}",
                f"- reference: {_escape(sentence.reference)}",
                f"- translation: {_escape(sentence.hypothesis)}",
                f"- look inside: {_code(inspection(system, sentence))}",
                "",
            ]
    return "\n".join(lines)


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table with its heading and its notes."""
    yield f"## {_escape(table.title)}"
    yield ""
    yield _row(table.header)
    yield _row(["---"] * len(table.header), escaped=False)
    yield from map(_row, table.rows)
    yield ""
    for note in table.notes:
        yield f"- {_escape(note)}"
    if table.notes:
        yield ""


def to_html(report: Report) -> str:
    """Return the report as one page that needs nothing else, with the chart of `length_chart`."""
    scores, output, by_length = tables(report)
    chart = html_picture(length_chart(report), "BLEU by length, as a chart")
    sections = [_html_table(scores), _html_table(output), _html_table(by_length, chart)]
    for system in report.systems:
        worst = [_html_worst(system, sentence) for sentence in system.worst]
        if worst:
            sections.append(html_section(f"Worst sentences of {system.name}", *worst))
    names = ", ".join(system.name for system in report.systems)
    return html_page("Scores · transduce", "Scores", "".join(sections), subtitle=names)


def _html_table(table: Table, chart: str = "") -> str:
    """Return a section with a table, its notes and its chart, which is HTML."""
    parts = [html_table(table.header, table.rows)]
    parts += [f'<p class="note">{escape(note)}</p>' for note in table.notes]
    if chart:
        parts.append(f'<div class="chart">{chart}</div>')
    return html_section(table.title, *parts)


def _html_worst(system: SystemReport, sentence: WorstSentence) -> str:
    """Return a sentence, its reference and its translation, and how to look inside."""
    return html_sample(
        [
            (f"line {sentence.line:,}", f"chrF++ {sentence.chrf:.1f}"),
            ("look inside", inspection(system, sentence)),
            ("source", sentence.source),
            ("reference", sentence.reference),
            ("translation", sentence.hypothesis),
        ]
    )


def _row(cells: tuple[str, ...] | list[str], *, escaped: bool = True) -> str:
    texts = [_escape(cell) if escaped else cell for cell in cells]
    return f"| {' | '.join(texts)} |"


def _escape(text: str) -> str:
    """Return a text on one line whose characters mean nothing in Markdown."""
    for mark in "\\`*_|<[#":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def _code(text: str) -> str:
    """Return a text as code; a fence of more backquotes than the text has in a row."""
    fence = "`"
    while fence in text:
        fence += "`"
    return f"{fence} {text} {fence}" if fence != "`" else f"`{text}`"
