"""Read a corpus as an endless stream, in which any position is found in constant time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.data.rng import raw
from transduce.data.store import Section
from transduce.errors import ConfigError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Stream:
    """A corpus that is read again and again. A position in it is a number of tokens of both sides.

    Pass number n reads variant n of the corpus, and starts at a random pair of it ("rotation").
    """

    section: Section
    corpus: range
    drawn: int  # tokens drawn in an epoch
    seed: tuple[int, int]

    @property
    def total(self) -> int:
        """The tokens of one pass, both sides together."""
        return self._tokens_before(self.corpus.stop) - self._tokens_before(self.corpus.start)

    def side_tokens(self, side: int) -> int:
        """Return how many tokens of the source (0) or the target (1) an epoch draws."""
        ragged = (self.section.source, self.section.target)[side]
        start = int(ragged.offsets[self.corpus.start])
        stop = int(ragged.offsets[self.corpus.stop])
        return round((stop - start) * self.drawn / self.total)

    def between(self, start: int, stop: int) -> Rows:
        """Return the rows of the pairs that begin between two positions."""
        first_pass, first_pair = self._locate(start)
        last_pass, end_pair = self._locate(stop)
        size = len(self.corpus)
        pieces = []
        for number in range(first_pass, last_pass + 1):
            low = first_pair if number == first_pass else 0
            high = end_pair if number == last_pass else size
            rotated = (self._rotation(number) + np.arange(low, high)) % size
            pieces.append(self._first_row(number) + rotated)
        return np.concatenate(pieces)

    def _locate(self, position: int) -> tuple[int, int]:
        """Return the pass of a position, and how many pairs of that pass begin before it."""
        number, rest = divmod(position, self.total)
        first = self._first_row(number)
        stop = first + len(self.corpus)
        turn = first + self._rotation(number)  # the row where this pass starts
        start_tokens = self._tokens_before(first)
        end_tokens = self._tokens_before(stop)

        # Each variant has its own number of tokens: scale the position to this variant.
        scaled = rest * (end_tokens - start_tokens) // self.total
        tokens = self._tokens_before(turn) + scaled

        # The pass reads from `turn` to the end of the corpus, and then from its start to `turn`.
        if tokens <= end_tokens:
            return number, self._row_at(tokens, turn, stop) - turn
        row = self._row_at(tokens - end_tokens + start_tokens, first, turn)
        return number, (stop - turn) + (row - first)

    def _first_row(self, number: int) -> int:
        variant = number % self.section.variants
        return variant * self.section.pairs + self.corpus.start

    def _rotation(self, number: int) -> int:
        return int(raw(1, "pass", *self.seed, number)[0]) % len(self.corpus)

    def _row_at(self, tokens: int, low: int, high: int) -> int:
        """Return the first row from `low` to `high` with at least this many tokens before it."""
        return low + bisect.bisect_left(range(low, high), tokens, key=self._tokens_before)

    def _tokens_before(self, row: int) -> int:
        return int(self.section.source.offsets[row]) + int(self.section.target.offsets[row])


def make_streams(
    section: Section, weights: Sequence[float], temperature: float, seed: int
) -> list[Stream]:
    """Return a stream for each corpus that has pairs, with its share of an epoch."""
    corpora = list(section.corpora.values())
    weights = weights or [1.0] * len(corpora)
    if len(weights) != len(corpora):
        raise ConfigError(
            f"{len(weights)} weights are given for {len(corpora)} corpora; expected one for each"
        )
    shares = []
    for weight, rows in zip(weights, corpora, strict=True):
        shares.append((weight * len(rows)) ** (1 / temperature))

    streams = []
    for index, (rows, share) in enumerate(zip(corpora, shares, strict=True)):
        if not rows:
            continue
        passes = section.pairs * share / sum(shares) / len(rows)
        tokens = Stream(section, rows, 0, (seed, index)).total
        streams.append(Stream(section, rows, round(tokens * passes), (seed, index)))
    return streams
