"""The doctor's report: as data, as JSON and as a table."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field

from rich import box
from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from transduce.data.cleaning.rules import RULES
from transduce.data.cleaning.verdict import Verdict
from transduce.data.workers import counted

_EXAMPLES = 3  # for each rule
_CLIP = 200  # characters of an example


@dataclass(frozen=True)
class Example:
    """A pair that a rule found, shortened for display."""

    file: str
    line: int
    source: str
    target: str


@dataclass
class Finding:
    """How many pairs a rule found, where the first is, and examples."""

    drops: bool
    count: int = 0
    of: int | None = None  # the number of pairs checked, if only a sample was
    first: str = ""
    examples: list[Example] = field(default_factory=list)

    def add(self, file: str, line: int, source: str, target: str) -> None:
        """Count one more pair."""
        self.count += 1
        self.first = self.first or f"{file}:{line}"
        if len(self.examples) < _EXAMPLES:
            self.examples.append(Example(file, line, _shown(source), _shown(target)))

    def merge(self, later: Finding) -> None:
        """Add what the same rule found later."""
        self.count += later.count
        self.first = self.first or later.first
        self.examples += later.examples[: _EXAMPLES - len(self.examples)]


@dataclass
class Report:
    """The state of a corpus. If there are errors, the counts cover only what could be read."""

    source_language: str
    target_language: str
    pairs: int = 0
    kept: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # by rule; each pair is counted once
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)

    def to_json(self) -> str:
        """Return the report as a JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2) + "\n"

    def nothing_left(self) -> str:
        """Return the message for a corpus of which cleaning leaves no pair."""
        message = f"no usable pair is left of {self.pairs:,}"
        reasons = [f"{count:,} {rule}" for rule, count in self.dropped.items()]
        return f"{message} ({', '.join(reasons)})" if reasons else message


def print_report(report: Report, console: Console) -> None:
    """Print a table of the findings, the most frequent first, and an example of each."""
    ordered = sorted(report.findings.items(), key=lambda item: -item[1].count)
    if ordered:
        console.print(_table(ordered, report.pairs))
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
    _print_verdict(report, console)


def _print_verdict(report: Report, console: Console) -> None:
    """Print what the text looks like, what suits it, and whether it can be used."""
    verdict = report.verdict
    for name, side in zip(("source", "target"), verdict.sides, strict=False):
        language = f"looks like {side.language!r}, " if side.language else ""
        lengths = f"{side.median_words} words (median), 95% have at most {side.long_words}"
        console.print(Text(f"{name}: {language}{lengths}"), soft_wrap=True)
    if verdict.preset:
        size = f"{verdict.vocab_size:,}"
        console.print(Text(f"suggested: preset {verdict.preset}, a vocabulary of {size} pieces"))
    if verdict.text:
        console.print(Text(f"verdict: {verdict.text}", "bold"), soft_wrap=True)


def _table(findings: Iterable[tuple[str, Finding]], pairs: int) -> Table:
    headers = ("finding", "pairs", "share", "these are", "first seen")
    table = Table(*headers, box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[1].justify = "right"
    table.columns[2].justify = "right"
    table.columns[4].overflow = "fold"
    for rule, finding in findings:
        checked = finding.of or pairs
        share = f"{finding.count / checked:.2%}" if checked else ""
        if share and finding.of is not None:
            share += " of a sample"
        action = Text("dropped", "red") if finding.drops else Text("kept", "yellow")
        table.add_row(Text(rule, "bold"), f"{finding.count:,}", share, action, Text(finding.first))
    return table


@contextlib.contextmanager
def shown_progress(console: Console) -> Iterator[Callable[[int], None]]:
    """Show progress: a live count on a terminal, or a line every ten seconds.

    The value of the `with` statement is a function to call with the number of pairs just done.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,} pairs examined"),
        TimeElapsedColumn(),
    )
    with counted(console, columns, lambda done: f"{done:,} pairs examined") as advance:
        yield advance


def _shown(text: str) -> str:
    """Return a text shortened, with escapes for characters that cannot be printed."""
    clipped = text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"
    if clipped.isprintable():
        return clipped
    return "".join(map(_escape, clipped))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
