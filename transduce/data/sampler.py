"""Which pairs make a step (§5.1): a pure function of (seed, step), whatever the ranks, reached in constant time.

The store is shuffled once, when it is written, so a run of consecutive pairs is a sample of the corpus. Each corpus is
an endless stream, pass after pass, each pass starting at another pair. The streams advance together by shards of
equal numbers of tokens, which memory-mapped offsets find by bisection; a shard is shuffled and dealt into a fixed
number of steps. So a division leads from a step to its shard, and neither start-up nor memory grows with the corpus.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.config import Recipe
from transduce.data.batches import (
    TILE,
    Batch,
    Layout,
    Shape,
    pack,
    packed_shapes,
    padded_shapes,
    up_to,
)
from transduce.data.rng import permutation, raw
from transduce.data.store import Section, Store
from transduce.errors import ConfigError, DataError

Rows = NDArray[np.int64]

SHARD_STEPS = 64  # at most so many steps are shuffled together
_HANDS = 64


class Sampler:
    """The steps of a training run.

    With equal weights and temperature 1, an epoch draws every pair exactly once. Otherwise it draws about as many
    pairs, each corpus in proportion to (weight x pairs)^(1 / temperature), and its pairs exactly once in each of its
    own passes.
    """

    def __init__(
        self,
        store: Store,
        *,
        tokens_per_step: int,
        seed: int,
        weights: Sequence[float] = (),
        temperature: float = 1.0,
        layout: Layout = "packed",
    ) -> None:
        """Sampler batches of about `tokens_per_step` tokens on the longer side; `weights` is one for each corpus."""
        self.section, self.layout, self._seed = store.train, layout, seed
        self._pads = (store.source_tokenizer.pad, store.target_tokenizer.pad)
        longest = self.section.longest
        if self.section.pairs == 0:
            raise DataError(
                f"the token store {store.path} has no training pairs; name data.corpora and prepare again"
            )
        if tokens_per_step < 4 * longest:  # so that no step can be empty and steps are alike
            raise ConfigError(
                f"training.tokens_per_step is {tokens_per_step:,}, but the longest sentence has {longest:,} tokens; "
                f"expected at least {4 * longest:,}: raise it, or lower data.max_tokens and prepare again"
            )
        self._streams = _streams(self.section, weights, temperature, seed)
        self._tokens = [sum(stream.side(side) for stream in self._streams) for side in (0, 1)]
        steps = -(-max(self._tokens) // tokens_per_step)
        self._shards = -(-steps // SHARD_STEPS)
        self._shard_steps = -(-steps // self._shards)
        self._dealt: tuple[int, list[Rows]] = (-1, [])  # the shard at hand and its steps
        self._split: tuple[int, int, Rows] = (
            -1,
            0,
            np.empty(0, np.int64),
        )  # the step at hand and its parts

    @classmethod
    def of(cls, recipe: Recipe, store: Store, layout: Layout = "packed") -> Sampler:
        """The plan that a recipe asks for."""
        return cls(
            store,
            tokens_per_step=recipe.training.tokens_per_step,
            seed=recipe.training.seed,
            weights=[corpus.weight for corpus in recipe.data.corpora],
            temperature=recipe.data.temperature,
            layout=layout,
        )

    @property
    def steps_per_epoch(self) -> int:
        """The same in every epoch."""
        return self._shards * self._shard_steps

    def pairs(self, step: int) -> Rows:
        """The rows of the store that step (from 0, without end) learns from."""
        if step < 0:
            raise ConfigError(f"step is {step}; the first one is 0")
        shard, number = divmod(step, self._shard_steps)
        if self._dealt[0] != shard:
            self._dealt = (shard, self._deal_shard(shard))
        return self._dealt[1][number]

    def batch(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """One of `parts` equal shares of a step's pairs: of a rank, of a micro-batch, or of both."""
        if not 0 <= part < parts:
            raise ConfigError(f"part is {part} of {parts}; expected 0 to {parts - 1}")
        rows = self.pairs(step)
        if self.layout == "padded":  # they stand in order of length
            return pack(
                self.section,
                rows[part::parts],
                self._pads,
                padded_shapes(self.section, rows, parts),
            )
        if parts > 1:
            if self._split[:2] != (step, parts):
                self._split = (step, parts, deal(_lengths(self.section, rows), parts))
            rows = rows[self._split[2] == part]
        return pack(self.section, rows, self._pads, self._packed_shapes(rows, parts))

    def shape(self, parts: int = 1) -> tuple[int, int]:
        """Positions of the packed source and target rows: one shape for the whole run."""
        means = (tokens / self.steps_per_epoch / parts for tokens in self._tokens)
        # Of dealing; more hands are harder to even out.
        unevenness = self.section.longest * (1 - 0.75 / parts)
        source, target = (up_to(1.0025 * mean + unevenness, TILE) for mean in means)
        return source, target

    def _packed_shapes(self, rows: Rows, parts: int) -> tuple[Shape, Shape]:
        """Always `shape`. Only pairs that cannot be dealt evenly (few, and of odd lengths) make a row grow."""
        source, target = (
            next(
                length
                for k in range(len(rows) + 2)
                if (length := up_to(base * (1 + k / 4), TILE)) >= used
            )
            for base, used in zip(
                self.shape(parts), _lengths(self.section, rows).sum(0), strict=True
            )
        )
        return packed_shapes((source, target))

    def _deal_shard(self, shard: int) -> list[Rows]:
        """The pairs of each step of a shard."""
        rows = np.concatenate(
            [
                s.between(shard * s.drawn // self._shards, (shard + 1) * s.drawn // self._shards)
                for s in self._streams
            ]
        )
        rows = rows[permutation(len(rows), "pairs", self._seed, shard)]
        lengths = _lengths(self.section, rows)
        # §5.1: sentence pairs batched together by approximate sequence length.
        if self.layout == "padded":
            order = np.argsort(lengths.max(1), kind="stable")
            rows, positions = rows[order], lengths[order].max(1)
            hands = (np.cumsum(positions) - positions) * self._shard_steps // positions.sum()
        else:
            hands = deal(lengths, self._shard_steps)
        ends = np.cumsum(np.bincount(hands, minlength=self._shard_steps))
        by_step = np.split(rows[np.argsort(hands, kind="stable")], ends[:-1])
        return [
            by_step[step] for step in permutation(self._shard_steps, "steps", self._seed, shard)
        ]


@dataclass(frozen=True)
class _Stream:
    """A corpus read over and over; a place in it is counted in tokens of both sides."""

    section: Section
    corpus: range
    drawn: int  # tokens an epoch
    seed: tuple[int, int]

    @property
    def total(self) -> int:
        """Tokens of a pass."""
        return self._before(self.corpus.stop) - self._before(self.corpus.start)

    def side(self, side: int) -> int:
        """Tokens that an epoch draws of the source (0) or the target (1)."""
        offsets = (self.section.source, self.section.target)[side].offsets
        tokens = int(offsets[self.corpus.stop]) - int(offsets[self.corpus.start])
        return round(tokens * self.drawn / self.total)

    def between(self, start: int, stop: int) -> Rows:
        """The pairs that begin from one place up to another."""
        (first, begin), (last, end) = self._locate(start), self._locate(stop)
        size, pieces = len(self.corpus), []
        for number in range(first, last + 1):
            low, high = (begin if number == first else 0), (end if number == last else size)
            pieces.append(
                self._first_row(number) + (self._rotation(number) + np.arange(low, high)) % size
            )
        return np.concatenate(pieces)

    def _locate(self, place: int) -> tuple[int, int]:
        """The pass of a place, and how many pairs of that pass begin before it."""
        number, rest = divmod(place, self.total)
        first, turn = self._first_row(number), self._rotation(number)
        start, end = self._before(first), self._before(first + len(self.corpus))
        # A variant has a length of its own.
        sought = self._before(first + turn) + rest * (end - start) // self.total
        if sought <= end:
            return number, self._row_at(
                sought, first + turn, first + len(self.corpus)
            ) - first - turn
        return number, len(self.corpus) - turn + self._row_at(
            sought - end + start, first, first + turn
        ) - first

    def _first_row(self, number: int) -> int:
        return (number % self.section.variants) * self.section.pairs + self.corpus.start

    def _rotation(self, number: int) -> int:
        return int(raw(1, "pass", *self.seed, number)[0]) % len(self.corpus)

    def _row_at(self, place: int, low: int, high: int) -> int:
        return low + bisect.bisect_left(range(low, high), place, key=self._before)

    def _before(self, row: int) -> int:
        return int(self.section.source.offsets[row]) + int(self.section.target.offsets[row])


def deal(lengths: NDArray[np.int64], hands: int) -> NDArray[np.int64]:
    """Deal pairs of (source, target) lengths (P, 2) so that hands are alike on both sides: the hand of each, (P,).

    The longest go first, one to each hand a round. A round evens out what differs most so far, totals or the balance
    of the sides: the pair with the most goes to the hand with the least.
    """
    many = _HANDS // hands
    # Few hands mean many rounds: deal small ones, then deal those.
    if many > 1 and len(lengths) > many * hands:
        small = deal(lengths, many * hands)
        sums = np.stack(
            [np.bincount(small, lengths[:, side], many * hands) for side in (0, 1)], axis=1
        )
        return deal(sums.astype(np.int64), hands)[small]
    rounds = -(-len(lengths) // hands)
    order = np.argsort(-lengths.sum(1), kind="stable")
    blank = len(lengths)  # a pair without tokens, for the last round
    order = np.concatenate([order, np.full(rounds * hands - blank, blank)]).reshape(rounds, hands)
    lengths = np.concatenate([lengths, [[0, 0]]])
    amounts = (lengths.sum(1), lengths[:, 0] - lengths[:, 1])
    held = (np.zeros(hands, np.int64), np.zeros(hands, np.int64))
    hand_of = np.empty(blank + 1, np.int64)
    for pairs in order:
        which = int(np.ptp(held[0]) < np.ptp(held[1]))
        least_first, most_first = (
            held[which].argsort(kind="stable"),
            pairs[(-amounts[which][pairs]).argsort(kind="stable")],
        )
        hand_of[most_first] = least_first
        for sums, amount in zip(held, amounts, strict=True):
            sums[least_first] += amount[most_first]
    return hand_of[:blank]


def _streams(
    section: Section, weights: Sequence[float], temperature: float, seed: int
) -> list[_Stream]:
    corpora = list(section.corpora.values())
    weights = weights or [1.0] * len(corpora)
    if len(weights) != len(corpora):
        raise ConfigError(
            f"{len(weights)} weights are given for {len(corpora)} corpora; expected one for each"
        )
    shares = [
        (weight * len(rows)) ** (1 / temperature)
        for weight, rows in zip(weights, corpora, strict=True)
    ]
    streams = []
    for index, (rows, share) in enumerate(zip(corpora, shares, strict=True)):
        if rows:
            whole = _Stream(section, rows, 0, (seed, index))
            passes = section.pairs * share / sum(shares) / len(rows)
            streams.append(_Stream(section, rows, round(whole.total * passes), (seed, index)))
    return streams


def _lengths(section: Section, rows: Rows) -> NDArray[np.int64]:
    return np.stack([section.source.lengths(rows), section.target.lengths(rows)], axis=1)
