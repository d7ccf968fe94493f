"""`transduce paper`: run the rows of a part of the paper, or say what they would cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import ConfigError
from transduce.paper import table3
from transduce.paper.budget import check_budget
from transduce.paper.corpus import find_corpus
from transduce.paper.costs import cost_table
from transduce.paper.experiment import Row, run_row, say
from transduce.paper.report import write_report


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user wants."""

    out: Path
    corpus: str | None = None  # a recipe file, the name of a corpus, or a folder of trees
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    budget: float = 1.0
    seed: int = 1
    model: Path | None = None
    tokens_per_second: float | None = None
    dry_run: bool = False
    device: str | None = None


def run_part(part: str, options: Options) -> None:
    """Run a part of the paper: a table, the figures, the claims or the report."""
    check_budget(options.budget)
    PARTS[part](options)


def _report(options: Options) -> None:
    for path in write_report(options.out):
        say(f"wrote {path}")


def _table3(options: Options) -> None:
    corpus = _corpus(options)
    data = find_corpus(corpus, options.out, fetch=not options.dry_run)
    rows = table3.rows(
        options.rows,
        data,
        corpus=corpus,
        budget=options.budget,
        seed=options.seed,
        overrides=options.overrides,
    )
    _train(rows, options)


def _corpus(options: Options) -> str:
    if options.corpus is None:
        raise ConfigError(
            "the text is missing; give a recipe file, or the name of a corpus such as wmt14-en-de"
        )
    return options.corpus


def _train(rows: Sequence[Row], options: Options) -> None:
    """Train rows one after the other, or print what they would cost."""
    if options.dry_run:
        print(cost_table(rows, options.out, options.tokens_per_second).to_text())
        return
    for row in rows:
        if run_row(row, options.out, options.device) is None:
            say(f"{row.part} {row.name} was stopped; run the same command again to continue")
            return
    _report(options)


PARTS: dict[str, Callable[[Options], None]] = {
    "table3": _table3,
    "report": _report,
}
