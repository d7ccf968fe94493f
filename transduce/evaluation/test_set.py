"""A test set: two parallel files, translated and scored."""

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

AT_ONCE = 256  # lines between two steps of the bar


def score_files(
    translator: Translator, source: Path, reference: Path, *, ter: bool = False
) -> Scores:
    """Translate the lines of `source` and compare them with those of `reference`."""
    data = translator.recipe.data
    sources, references = (
        list(chain.from_iterable(lines.texts for lines in read_lines(path, language)))
        for path, language in ((source, data.source_language), (reference, data.target_language))
    )
    if len(sources) != len(references):
        raise DataError(
            f"{source} has {len(sources):,} lines but {reference} has {len(references):,}; they must be parallel"
        )
    found = []
    with progress("translating", len(sources)) as advance:
        for start in range(0, len(sources), AT_ONCE):
            found += translator.translate(sources[start : start + AT_ONCE])
            advance(len(found) - start)
    if short := sum(bool(translation.notices) for translation in found):
        said = (
            f"{short:,} of {len(sources):,} lines were split or cut; transduce translate says which"
        )
        print(f"transduce: {said}", file=sys.stderr)
    return score([translation.text for translation in found], references, ter=ter)


def print_scores(scores: Scores, *, as_json: bool) -> None:
    """A table with signatures, or JSON."""
    if as_json:
        print(json.dumps(scores.to_json()))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("score", "value", "signature", box=None, pad_edge=False)
    for one in scores:
        table.add_row(one.name, f"{one.value:.2f}", one.signature)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200)
    console.print(table, highlight=False, markup=False)
