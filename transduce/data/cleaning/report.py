"""What the doctor found, as data, as JSON and as a table to read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from rich import box
from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from transduce.data.cleaning.rules import RULES
from transduce.data.workers import counted
from transduce.errors import DataError

_EXAMPLES = 3
_CLIP = 200


@dataclass(frozen=True)
class Example:
    """A pair that a rule found, shortened to be shown."""

    file: str
    line: int
    source: str
    target: str


@dataclass
class Finding:
    """How often a rule found something, where first, and what."""

    drops: bool
    count: int = 0
    of: int | None = None  # the number of pairs looked at, where not all were
    first: str = ""
    examples: list[Example] = field(default_factory=list)

    def add(self, file: str, line: int, source: str, target: str) -> None:
        """One more."""
        self.count += 1
        self.first = self.first or f"{file}:{line}"
        if len(self.examples) < _EXAMPLES:
            self.examples.append(Example(file, line, _shown(source), _shown(target)))

    def merge(self, later: Finding) -> None:
        """Take in what the same rule found elsewhere."""
        self.count += later.count
        self.first = self.first or later.first
        self.examples += later.examples[: _EXAMPLES - len(self.examples)]


@dataclass
class Report:
    """The state of a corpus. With errors, a part of it could not be read and the counts are of the rest."""

    source_language: str
    target_language: str
    pairs: int = 0
    kept: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # each dropped pair by its first reason
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """The report as a JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2) + "\n"

    def require_usable(self) -> None:
        """Refuse a corpus of which cleaning leaves nothing."""
        if self.kept == 0:
            raise DataError(self.nothing_left())

    def nothing_left(self) -> str:
        """One line for that case, with the reasons counted."""
        reasons = [f"{count:,} {rule}" for rule, count in self.dropped.items()]
        return f"no usable pair is left of {self.pairs:,}" + f" ({', '.join(reasons)})" * bool(
            reasons
        )


def print_report(report: Report, console: Console) -> None:
    """The findings as a table, the most frequent first, then an example of each."""
    table = Table(
        "finding", "pairs", "share", "these are", "first seen", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.columns[1].justify = table.columns[2].justify = "right"
    table.columns[4].overflow = "fold"
    ordered = sorted(report.findings.items(), key=lambda item: -item[1].count)
    for rule, finding in ordered:
        of = finding.of or report.pairs
        share = (
            f"{finding.count / of:.2%}" + " of a sample" * (finding.of is not None) if of else ""
        )
        action = Text("dropped", "red") if finding.drops else Text("kept", "yellow")
        table.add_row(Text(rule, "bold"), f"{finding.count:,}", share, action, Text(finding.first))
    if ordered:
        console.print(table)
    for rule, finding in ordered:
        console.print(Text.assemble((rule, "bold"), f": {RULES[rule].why}"), soft_wrap=True)
        for example in finding.examples[:1]:
            for text in (example.source, example.target):
                console.print(Text(f"  {text}", "dim"), overflow="ellipsis", no_wrap=True)
    dropped = report.pairs - report.kept
    languages = f"{report.source_language}-{report.target_language}"
    console.print(
        f"\n{report.pairs:,} pairs ({languages}): {report.kept:,} kept, {dropped:,} dropped",
        highlight=False,
    )
    for note in report.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)


@contextlib.contextmanager
def shown_progress(console: Console) -> Iterator[Callable[[int], None]]:
    """A function to tell of pairs that are done: a live count on a terminal, a line every ten seconds elsewhere."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,} pairs examined"),
        TimeElapsedColumn(),
    )
    with counted(console, columns, lambda done: f"{done:,} pairs examined") as advance:
        yield advance


def _shown(text: str) -> str:
    """Short, and fit for a terminal and for a UTF-8 file: what cannot be seen is written as an escape."""
    clipped = text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"
    if clipped.isprintable():
        return clipped
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in clipped)
