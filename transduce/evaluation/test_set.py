"""Scoring of a test set: two parallel files, source and reference."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path

from transduce.data.readers.lines import read_lines
from transduce.data.workers import progress
from transduce.errors import DataError
from transduce.evaluation.scores import Scores, score
from transduce.translation.translator import Translator

AT_ONCE = 256  # lines between two updates of the progress bar


def score_files(
    translator: Translator, source: Path, reference: Path, *, ter: bool = False
) -> Scores:
    """Translate the lines of `source` and compare them with the lines of `reference`."""
    sources, references = read_test_set(translator, source, reference)
    translations = []
    with progress("translating", len(sources)) as advance:
        for start in range(0, len(sources), AT_ONCE):
            translations += translator.translate(sources[start : start + AT_ONCE])
            advance(len(translations) - start)
    with_notices = sum(bool(translation.notices) for translation in translations)
    if with_notices:
        print(
            f"transduce: {with_notices:,} of {len(sources):,} lines were split or cut; transduce "
            "translate says which",
            file=sys.stderr,
        )
    return score([translation.text for translation in translations], references, ter=ter)


def read_test_set(
    translator: Translator, source: Path, reference: Path
) -> tuple[list[str], list[str]]:
    """Return the lines of two parallel files in the languages of a translator."""
    data = translator.recipe.data
    sources = _read_texts(source, data.source_language)
    references = _read_texts(reference, data.target_language)
    if len(sources) != len(references):
        raise DataError(
            f"{source} has {len(sources):,} lines but {reference} has {len(references):,}; they "
            "must be parallel"
        )
    return sources, references


def _read_texts(path: Path, language: str) -> list[str]:
    return list(chain.from_iterable(lines.texts for lines in read_lines(path, language)))


def print_scores(scores: Scores, *, as_json: bool) -> None:
    """Print a table with signatures, or JSON."""
    if as_json:
        print(json.dumps(scores.to_json()))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("score", "value", "signature", box=None, pad_edge=False)
    for entry in scores:
        table.add_row(entry.name, f"{entry.value:.2f}", entry.signature)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200)
    console.print(table, highlight=False, markup=False)
