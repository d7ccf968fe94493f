"""A table of models: quality on a test set, size on disk, and speed on this machine."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from transduce.describe import count_parameters
from transduce.evaluation.scores import Scores, score
from transduce.evaluation.test_set import translate_test_set
from transduce.storage.installed import find_bundle
from transduce.translation.translator import Translator

TIMED = 64  # sentences
ROUNDS = 3


@dataclass(frozen=True)
class Measured:
    """One model of the comparison."""

    name: str
    parameters: int
    megabytes: float  # of its folder
    scores: Scores | None
    sentences_per_second: float


def compare(
    models: Mapping[str, Path],
    sources: Sequence[str],
    references: Sequence[str] = (),
    *,
    device: str | None = None,
    without_shortlist: Collection[str] = (),
) -> list[Measured]:
    """Measure models on the same sentences. Scores need references; speeds are taken in turns.

    Those in `without_shortlist` consider all tokens.
    """
    translators = {}
    for name, path in models.items():
        change = partial(replace, shortlist=name not in without_shortlist)
        translators[name] = Translator(path, device=device, search=change)
    scores: dict[str, Scores] = {}
    if references:
        for name, translator in translators.items():
            hypotheses = translate_test_set(translator, sources, f"translating with {name}")
            scores[name] = score(hypotheses, references)

    rates = _rates(translators, list(sources[:TIMED]))
    measured = []
    for name, path in models.items():
        folder = find_bundle(path)
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        parameters = count_parameters(translators[name].recipe.model)
        measured.append(Measured(name, parameters, size / 1e6, scores.get(name), rates[name]))
    return measured


def _rates(translators: Mapping[str, Translator], sentences: list[str]) -> dict[str, float]:
    """Return sentences per second of each model, which translate in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in translators}
    for number in range(ROUNDS + 1):
        for name, translator in translators.items():
            started = time.perf_counter()
            translator.translate(sentences)
            if number:  # the first round warms up
                seconds[name].append(time.perf_counter() - started)
    return {name: len(sentences) / statistics.median(times) for name, times in seconds.items()}


def print_comparison(measured: Sequence[Measured]) -> None:
    """Print the table; factors are relative to the first model."""
    from rich.console import Console
    from rich.table import Table

    first = measured[0]
    table = Table("model", "parameters", "size", "BLEU", "chrF", "sentences/s", box=None)
    for model in measured:
        bleu = f"{model.scores.bleu.value:.1f}" if model.scores else "-"
        chrf = f"{model.scores.chrf.value:.1f}" if model.scores else "-"
        factor = model.sentences_per_second / first.sentences_per_second
        speed = f"{model.sentences_per_second:.1f} ({factor:.2f} x)"
        size = f"{model.megabytes:.1f} MB"
        table.add_row(model.name, f"{model.parameters:,}", size, bleu, chrf, speed)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    console.print(table, highlight=False, markup=False)
    if first.scores:
        print(f"BLEU is {first.scores.bleu.signature}")
