"""Whether runs differ by more than chance: a paired test on the text that all of them know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.data.store import Section, Store
from transduce.errors import InputError, TransduceError
from transduce.evaluation.report import evaluate
from transduce.evaluation.tables import Table, score_cell, verdicts
from transduce.evaluation.test_set import translate_test_set
from transduce.monitoring.metrics import read_metrics
from transduce.translation.translator import Translator

REMEDY = "compare the runs on other text: transduce score RUN RUN SOURCE REFERENCE"


@dataclass(frozen=True)
class SharedText:
    """The sentences of one set, and their human translations."""

    name: str
    sources: list[str]
    references: list[str]


def compare_translations(runs: Sequence[Path]) -> Table:
    """Translate the text of the runs with the best model of each, and test their differences."""
    text = shared_text(runs)
    systems = {}
    for run in runs:
        translator = Translator(run)
        systems[str(run)] = translate_test_set(translator, text.sources, f"translating with {run}")
    report = evaluate(systems, text.references, text.sources, worst=0)
    rows = []
    for system in report.systems:
        cells = [score_cell(system.scores[key]) for key in ("bleu", "chrf")]
        rows.append((system.name, *cells))
    title = f"{text.name}: {report.sentences:,} sentences, translated with the best models"
    return Table(title, ("run", "BLEU", "chrF"), tuple(rows), tuple(verdicts(report)))


def shared_text(runs: Sequence[Path]) -> SharedText:
    """Return the test text of the runs, or else their validation text; all must have the same."""
    stores = [_require_store(run) for run in runs]
    for kind, sections in (
        ("test text", [store.test for store in stores]),
        ("validation text", [store.validation for store in stores]),
    ):
        if not all(section.pairs for section in sections):
            continue
        first, *others = [_texts(section) for section in sections]
        for run, other in zip(runs[1:], others, strict=True):
            if other != first:
                raise InputError(f"{runs[0]} and {run} have different {kind}; {REMEDY}")
        sources, references = first
        return SharedText(kind, sources, references)
    raise InputError(f"the runs have neither test nor validation text in common; {REMEDY}")


def find_store(run: Path) -> Store | None:
    """Open the token store that a run was trained on; None if it is gone or damaged."""
    path = read_metrics(run).attempt.get("store")
    try:
        return Store(Path(path)) if isinstance(path, str) else None
    except (TransduceError, OSError):
        return None


def _require_store(run: Path) -> Store:
    store = find_store(run)
    if store is None:
        raise InputError(f"the text of {run} is gone; {REMEDY}")
    return store


def _texts(section: Section) -> tuple[list[str], list[str]]:
    """Return the sources and the references of all sets of a section."""
    sources: list[str] = []
    references: list[str] = []
    for corpus in section.corpora:
        more_sources, more_references = section.texts(corpus)
        sources += more_sources
        references += more_references
    return sources, references
