"""Suggest a preset and a vocabulary size for a parallel text, by its size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SAMPLE = 20_000  # pairs from which words and characters are counted
# The largest number of pairs for each preset; Multi30k (29,000 pairs) is better with `small`.
PRESET_SIZES = {"tiny": 25_000, "small": 300_000}
LARGE_PRESET = "base"
VOCABULARY_SIZES = {2_000: 1_000, 5_000: 2_000, 15_000: 4_000, 50_000: 8_000, 300_000: 16_000}
LARGE_VOCABULARY = 32_000
SPECIAL_PIECES = 259  # 256 bytes, the end, the unknown token and padding


@dataclass(frozen=True)
class Statistics:
    """Numbers about a parallel text."""

    pairs: int
    words_per_sentence: float  # the average of both sides
    distinct_words: int
    distinct_characters: int


def measure_text(texts: Iterable[str], pairs: int) -> Statistics:
    """Return the statistics of a parallel text of so many pairs, from a sample of both sides."""
    sentences = 0
    total_words = 0
    words: set[str] = set()
    for text in texts:
        found = text.split()
        sentences += 1
        total_words += len(found)
        words.update(found)
    characters = set().union(*words)
    return Statistics(pairs, total_words / max(sentences, 1), len(words), len(characters))


def suggest_preset(pairs: int) -> str:
    """Return the preset that suits this number of pairs."""
    for name, most_pairs in PRESET_SIZES.items():
        if pairs <= most_pairs:
            return name
    return LARGE_PRESET


def suggest_vocabulary(statistics: Statistics) -> int:
    """Return a vocabulary size that suits the number of pairs and that the text can fill."""
    wanted = LARGE_VOCABULARY
    for most_pairs, size in VOCABULARY_SIZES.items():
        if statistics.pairs <= most_pairs:
            wanted = size
            break

    # Little text cannot fill a large vocabulary: every word can become a piece, but cleaning may
    # drop some. Every character is a piece.
    if statistics.pairs <= SAMPLE:
        wanted = min(wanted, SPECIAL_PIECES + statistics.distinct_words * 3 // 4)
    return max(wanted, SPECIAL_PIECES + statistics.distinct_characters + 10)
