"""What can be seen in translations without judging them: length, copies, repetitions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.evaluation.words import tokenization, word_counter

_WORD = re.compile(r"\w+")
_LONGEST_REPETITION = 4  # words
_TIMES = 3  # in a row


@dataclass(frozen=True)
class OutputStatistics:
    """Counts of a system's translations. Names and numbers are copied in any good translation.

    `copied_words` is the share of a translation's words that the source contains too; compare it
    with `copied_words_of_references`.
    """

    length_ratio: float  # tokens of the translations for each token of the references
    copied_words: float
    copied_words_of_references: float
    copied_sentences: int  # equal to the source, although the reference is not
    empty: int  # without any character but spaces
    repetitive: int  # with some words three times in a row, which the reference does not have


def describe_output(
    hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]
) -> OutputStatistics:
    """Count what a reader of the translations would notice."""
    copied = 0
    repetitive = 0
    for hypothesis, reference, source in zip(hypotheses, references, sources, strict=True):
        copied += hypothesis.split() == source.split() != reference.split()
        repetitive += _repeats(hypothesis) and not _repeats(reference)
    return OutputStatistics(
        length_ratio=length_ratio(hypotheses, references),
        copied_words=_copied_words(hypotheses, sources),
        copied_words_of_references=_copied_words(references, sources),
        copied_sentences=copied,
        empty=sum(not hypothesis.strip() for hypothesis in hypotheses),
        repetitive=repetitive,
    )


def length_ratio(
    hypotheses: Sequence[str], references: Sequence[str], words: str | None = None
) -> float:
    """Return the ratio of the lengths that BLEU's brevity penalty compares; 0 without tokens.

    `words` is the tokenization, by default that of the references.
    """
    count = word_counter(words or tokenization(references))
    tokens = sum(map(count, references))
    return sum(map(count, hypotheses)) / tokens if tokens else 0.0


def _copied_words(texts: Sequence[str], sources: Sequence[str]) -> float:
    """Return the share of words that occur in the source, each as often as there."""
    copied = 0
    total = 0
    for text, source in zip(texts, sources, strict=True):
        words = Counter(_words(text))
        copied += (words & Counter(_words(source))).total()
        total += words.total()
    return copied / total if total else 0.0


def _repeats(text: str) -> bool:
    """Return whether one to four words occur three times in a row."""
    words = _words(text)
    for width in range(1, _LONGEST_REPETITION + 1):
        in_a_row = 0  # words that equal the one `width` words before
        for index in range(width, len(words)):
            in_a_row = in_a_row + 1 if words[index] == words[index - width] else 0
            if in_a_row == width * (_TIMES - 1):
                return True
    return False


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
