"""The report: one page, as Markdown and HTML, from whatever results exist."""

from __future__ import annotations

from pathlib import Path

from transduce.errors import DataError
from transduce.paper import figures, table1, table2, table3, table4
from transduce.paper.claims import catalogue
from transduce.paper.page import Section, to_html, to_markdown
from transduce.paper.results import current_commit, load_results, short, text_name
from transduce.storage.disk import whole_file

TITLE = '"Attention Is All You Need", reproduced'
FIGURES = "figures"  # the folder of the pictures
PARTS = ("table1", "table2", "table3", "table4", "claims")


def write_report(out: Path) -> list[Path]:
    """Write report.md, report.html and the figures; return the paths of the two pages."""
    if not any(load_results(out, part) for part in PARTS):
        raise DataError(f"{out} has no results yet; run transduce paper table1 --out {out}")
    commit = current_commit()
    tables = [table.section(out, commit) for table in (table1, table2, table3, table4)]
    claims = catalogue.section(out, commit)
    pictures = figures.section(out / FIGURES)
    sections = [_origin(out, commit), *tables, claims, pictures]
    for section in sections:
        for figure in section.figures:
            write_page(out / FIGURES / figure.name, figure.svg)
    markdown = out / "report.md"
    html = out / "report.html"
    write_page(markdown, to_markdown(TITLE, sections, FIGURES))
    write_page(html, to_html(TITLE, sections))
    return [markdown, html]


def _origin(out: Path, commit: str) -> Section:
    """Return where the numbers come from, and which of them come from other code."""
    results = [result for part in PARTS for result in load_results(out, part).values()]
    devices = {str(result.hardware.get("gpu", result.hardware.get("cpu"))) for result in results}
    trained = [result for result in results if result.part != catalogue.PART]
    budgets = {f"{result.budget:g}" for result in trained if result.budget is not None}
    corpora = {text_name(result) for result in results if result.corpus}
    others = sorted({short(result.commit) for result in results} - {short(commit)})

    paragraphs = [f"{len(results)} results, on {', '.join(sorted(devices))}."]
    if budgets:
        paragraphs.append(
            "Budget, as a share of the paper's steps (100,000 for base, 300,000 for big): "
            f"{', '.join(sorted(budgets))}. Text: {', '.join(sorted(corpora))}."
        )
    paragraphs.append(f"This page was written by commit {short(commit)}.")
    if others:
        paragraphs.append(
            f"Some results come from other commits, {', '.join(others)}; their rows say so."
        )
    return Section("Where these numbers come from", paragraphs)


def write_page(path: Path, text: str) -> None:
    """Write a page or a figure, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text.encode())
