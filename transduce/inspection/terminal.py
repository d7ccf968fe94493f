"""Inspections and the importance of heads as text for a terminal."""

from __future__ import annotations

import sys

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce.inspection.importance import Importance
from transduce.inspection.result import Array, Inspection, Side
from transduce.inspection.svg import TITLES
from transduce.translation.alignment import alignment_layer

ALTERNATIVES = 3  # shown at each step
HYPOTHESES = 4
STRONGEST = 4  # heads for each measure
DISTANT = 3  # words
PAIRS = 6  # of distant words
# Of each measure, the heads with the largest share are shown if it is at least this.
TELLING = 0.3
_MEASURES = {
    "aligned": "the source word that is being translated",
    "previous": "the word before",
    "next": "the word after",
    "same": "the word itself",
    "punctuation": "punctuation",
    "end": "the end of the sentence, or the start",
}


def print_inspection(inspection: Inspection) -> None:
    """Print the translation, its steps, the hypotheses and the most telling heads."""
    console = _console()
    console.print(Text.assemble(("source       ", "dim"), inspection.text))
    console.print(Text.assemble(("translation  ", "dim"), (inspection.translation, "bold")))
    if inspection.full_translation is not None:
        console.print(Text.assemble(("all heads    ", "dim"), inspection.full_translation))
        console.print(Text.assemble(("without      ", "dim"), ", ".join(inspection.without)))
    for notice in inspection.notices:
        console.print(Text(f"note: {notice}", "yellow"))
    console.print()
    console.print(_steps(inspection))
    console.print()
    console.print(_hypotheses(inspection))
    for table in (_telling_heads(inspection), _distant_words(inspection)):
        if table.row_count:
            console.print()
            console.print(table)


def _steps(inspection: Inspection) -> Table:
    """Return a table of the steps: token, probability, where it looked, and the alternatives."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("step", "token", "probability", "looks at", "other candidates"):
        table.add_column(name, justify="right" if name in ("step", "probability") else "left")

    # The weights of one layer, as a mean over its heads and summed over the tokens of each word.
    cross = inspection.attention["cross"]
    weights = cross[alignment_layer(len(cross))].mean(0)  # (T, S)
    labels, by_word = _by_word(inspection.source, weights)

    # One row for each token of the translation.
    rows = zip(inspection.target.tokens, inspection.steps, by_word, strict=True)
    for number, (token, step, attended) in enumerate(rows, start=1):
        others = [
            f"{candidate.text} {candidate.probability:.2f}"
            for candidate in step.candidates
            if candidate.id != step.chosen
        ]
        best = int(np.argmax(attended))
        table.add_row(
            str(number),
            Text(token.text),
            f"{token.probability:.2f}",
            Text(f"{labels[best]} {attended[best]:.2f}"),
            Text("  ".join(others[:ALTERNATIVES]), "dim"),
        )
    return table


def _by_word(side: Side, weights: Array) -> tuple[list[str], Array]:
    """Add up the weights of the tokens of each word:  (T, S) -> (T, words)."""
    labels: list[str] = []
    columns: list[Array] = []
    words: dict[int, int] = {}  # the column of each word
    for index, token in enumerate(side.tokens):
        if token.word is not None and token.word in words:
            columns[words[token.word]] = columns[words[token.word]] + weights[:, index]
            continue
        if token.word is not None:
            words[token.word] = len(columns)
        labels.append(token.text if token.word is None else side.words[token.word])
        columns.append(weights[:, index])
    return labels, np.stack(columns, axis=1)


def _hypotheses(inspection: Inspection) -> Table:
    """Return a table of the hypotheses that ended, the best first."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("score", justify="right")
    table.add_column("hypotheses of the search")
    for hypothesis in inspection.beam.hypotheses[:HYPOTHESES]:
        table.add_row(f"{hypothesis.score:.3f}", Text(hypothesis.text))
    return table


def _telling_heads(inspection: Inspection) -> Table:
    """Return a table of the heads that look most at one kind of place."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("looks at", "heads and their share of attention"):
        table.add_column(name)
    for measure, meaning in _MEASURES.items():
        # "The word before" has another meaning in cross-attention.
        is_own = measure in ("previous", "next", "same")
        shares = [
            (getattr(head, measure) or 0.0, head.head)
            for head in inspection.measures
            if not (is_own and head.kind == "cross")
        ]
        best = sorted(shares, reverse=True)[:STRONGEST]
        shown = [f"{head} {share:.2f}" for share, head in best if share >= TELLING]
        if shown:
            table.add_row(meaning, "  ".join(shown))
    return table


def _distant_words(inspection: Inspection) -> Table:
    """Return a table of distant words of the source that heads of the encoder connect."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("distant words", "head and its share of attention"):
        table.add_column(name)
    side = inspection.source
    found = []
    for (layer, head, query, key), weight in np.ndenumerate(inspection.attention["encoder"]):
        start = side.tokens[query].word
        end = side.tokens[key].word
        if weight < TELLING or start is None or end is None or abs(start - end) < DISTANT:
            continue
        pair = (side.words[start], side.words[end])
        if all(any(map(str.isalnum, word)) for word in pair):
            found.append((float(weight), pair, f"encoder.{layer + 1}.{head + 1}"))
    for share, (query_word, key_word), name in sorted(found, reverse=True)[:PAIRS]:
        table.add_row(Text(f"{query_word} -> {key_word}"), f"{name} {share:.2f}")
    return table


def print_importance(importance: Importance) -> None:
    """Print a table with a row for each layer and a column for each head."""
    console = _console()

    # What the numbers mean.
    if importance.by == "loss":
        heading = f"loss with all heads: {importance.full:.4f} nats per token"
        meaning = "rise of the loss without each head"
    else:
        heading = f"BLEU with all heads: {importance.full:.2f}"
        meaning = "fall of BLEU without each head"
    console.print(f"{heading}, {importance.sentences:,} sentences; {meaning}:")

    # A table for each kind of attention, with the strong changes marked.
    largest = max(float(values.max(initial=0)) for values in importance.changes.values())
    digits = 4 if importance.by == "loss" else 2
    for kind, values in importance.changes.items():
        table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left")
        table.title = TITLES[kind]
        table.add_column("layer", justify="right")
        for index in range(values.shape[1]):
            table.add_column(f"head {index + 1}", justify="right")
        for layer, row in enumerate(values.tolist(), start=1):
            cells = [_cell(value, largest, digits) for value in row]
            table.add_row(str(layer), *cells)
        console.print()
        console.print(table)

    # The heads that matter most, in one line.
    strongest = "  ".join(f"{head} {value:+.{digits}f}" for head, value in importance.ranked()[:5])
    console.print(f"\nmost important: {strongest}")


def _cell(value: float, largest: float, digits: int) -> Text:
    strong = largest > 0 and value >= largest / 2
    return Text(f"{value:+.{digits}f}", "bold red" if strong else "" if value > 0 else "dim")


def _console() -> Console:
    width = None if sys.stdout.isatty() else 160
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)
