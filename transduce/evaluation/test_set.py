"""A test set: two parallel files, translated and scored."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path

from transduce.data.lines import read_lines
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.evaluation.scores import Scores, score


def score_files(translator: Translator, source: Path, reference: Path, *, ter: bool = False) -> Scores:
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
    return score([translation.text for translation in translator.translate(sources)], references, ter=ter)


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
