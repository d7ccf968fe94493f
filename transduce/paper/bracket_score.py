"""Labelled bracket F1 of parses, by the usual conventions of evalb (COLLINS.prm)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transduce.paper.trees import UNLABELLED, Span, Tree, spans_of, spans_of_text

# Tags of words that do not count: punctuation and quotation marks.
PUNCTUATION = frozenset({",", ":", "``", "''", "."})
SAME_LABEL = {"PRT": "ADVP"}  # evalb takes these two for one


@dataclass(frozen=True)
class BracketScore:
    """How many brackets of the parses are right, over a whole test set."""

    sentences: int
    malformed: int  # outputs that are no tree of their sentence; all their brackets are missing
    exact: int  # sentences all of whose brackets are right
    matched: int
    found: int
    expected: int

    @property
    def precision(self) -> float:
        """The share of the found brackets that are right, in percent."""
        return 100 * self.matched / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of the expected brackets that were found, in percent."""
        return 100 * self.matched / self.expected if self.expected else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, in percent."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def score_brackets(outputs: Sequence[str], gold: Sequence[Tree]) -> BracketScore:
    """Compare linearized parses with the trees of the same sentences."""
    malformed = exact = matched = found = expected = 0
    for output, tree in zip(outputs, gold, strict=True):
        places = _counted_words(tree)
        right = _brackets(spans_of(tree), places)
        spans = spans_of_text(output, len(places) - 1)
        malformed += spans is None
        given = _brackets(spans or (), places)
        common = (right & given).total()
        matched += common
        found += given.total()
        expected += right.total()
        exact += spans is not None and common == right.total() == given.total()
    return BracketScore(len(gold), malformed, exact, matched, found, expected)


def _counted_words(tree: Tree) -> list[int]:
    """Return for each word, and for the end, how many words before it count."""
    places = []
    count = 0
    for leaf in tree.leaves():
        places.append(count)
        count += leaf.label not in PUNCTUATION
    return [*places, count]


def _brackets(spans: Iterable[Span], places: Sequence[int]) -> Counter[Span]:
    """Return the brackets that count, in positions without punctuation."""
    brackets: Counter[Span] = Counter()
    for span in spans:
        start = places[span.start]
        end = places[span.end]
        label = SAME_LABEL.get(span.label, span.label)
        if label not in UNLABELLED and start < end:
            brackets[Span(label, start, end)] += 1
    return brackets
