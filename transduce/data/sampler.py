"""Choose the sentence pairs of every training step (§5.1), as a pure function of (seed, step).

The result does not depend on the number of ranks, and any step is reached in constant time:

- The store was shuffled once, when it was written, so consecutive pairs are a sample of the corpus.
- Each corpus is read as an endless stream, pass after pass, and each pass starts at another pair.
- All streams advance together in shards of equal numbers of tokens. A bisection over the
  memory-mapped offsets finds where a shard begins.
- A shard is shuffled and divided into a fixed number of steps, so that a division leads from a
  step to its shard. Neither start-up time nor memory grows with the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from transduce.data.rng import permutation
from transduce.data.store import Section, Store
from transduce.data.stream import Rows, Stream, make_streams
from transduce.errors import ConfigError, DataError

SHARD_STEPS = 64  # the most steps that are shuffled together
_MOST_HANDS = 64


class Sampler:
    """The sentence pairs of each step of a training run.

    With equal weights and temperature 1, an epoch draws every pair exactly once. Otherwise an epoch
    draws about as many pairs, each corpus in proportion to (weight x pairs)^(1 / temperature). One
    pass over a corpus still draws each of its pairs exactly once.
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
        """Sample from the training section of a store.

        Args:
            store: The token store.
            tokens_per_step: The tokens of a step, approximately, on the side that has more of them.
            seed: The seed of the order of the pairs.
            weights: One weight for each corpus; by default all are equal.
            temperature: Above 1, small corpora are drawn more often than their size suggests.
            layout: Whether batches are packed or padded.
        """
        self.section = store.train
        self.layout = layout
        self._seed = seed
        self._pads = (store.source_tokenizer.pad, store.target_tokenizer.pad)
        longest = self.section.longest
        if self.section.pairs == 0:
            raise DataError(
                f"the token store {store.path} has no training pairs; "
                "name data.corpora and prepare again"
            )
        # Below this bound, steps would differ in size and some could be empty.
        if tokens_per_step < 4 * longest:
            raise ConfigError(
                f"training.tokens_per_step is {tokens_per_step:,}, but the longest sentence has "
                f"{longest:,} tokens; expected at least {4 * longest:,}: raise it, or lower "
                "data.max_tokens and prepare again"
            )
        self._streams = make_streams(self.section, weights, temperature, seed)

        # An epoch is a whole number of shards, and all shards have the same number of steps.
        self._tokens = [_tokens_per_epoch(self._streams, side) for side in (0, 1)]
        steps = -(-max(self._tokens) // tokens_per_step)
        self._shards = -(-steps // SHARD_STEPS)
        self._shard_steps = -(-steps // self._shards)

        # Two caches: the steps of the current shard, and how the current step is divided.
        self._cached_shard = -1
        self._cached_steps: list[Rows] = []
        self._cached_division = (-1, 0)  # step, parts
        self._cached_part_of: Rows = np.empty(0, np.int64)

    @classmethod
    def of(cls, recipe: Recipe, store: Store, layout: Layout = "packed") -> Sampler:
        """Return the sampler that a recipe describes."""
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
        """The number of steps of an epoch, which is the same in every epoch."""
        return self._shards * self._shard_steps

    def pairs(self, step: int) -> Rows:
        """Return the store rows that a step learns from. Steps count from 0, without end."""
        if step < 0:
            raise ConfigError(f"step is {step}; the first one is 0")
        shard, number = divmod(step, self._shard_steps)
        if self._cached_shard != shard:
            self._cached_steps = self._divide_shard(shard)
            self._cached_shard = shard
        return self._cached_steps[number]

    def batch(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Return one of `parts` equal shares of a step, for one rank, one micro-batch, or both."""
        if not 0 <= part < parts:
            raise ConfigError(f"part is {part} of {parts}; expected 0 to {parts - 1}")
        rows = self.pairs(step)

        # Padded pairs are in order of length: every parts-th pair makes shares of equal lengths.
        if self.layout == "padded":
            shapes = padded_shapes(self.section, rows, parts)
            return pack(self.section, rows[part::parts], self._pads, shapes)

        if parts > 1:
            if self._cached_division != (step, parts):
                self._cached_part_of = deal(_lengths(self.section, rows), parts)
                self._cached_division = (step, parts)
            rows = rows[self._cached_part_of == part]
        return pack(self.section, rows, self._pads, self._packed_shapes(rows, parts))

    def shape(self, parts: int = 1) -> tuple[int, int]:
        """Return the lengths of the packed source and target rows, the same for the whole run."""
        # Parts are not exactly even, and more parts are harder to even out.
        unevenness = self.section.longest * (1 - 0.75 / parts)
        lengths = []
        for tokens in self._tokens:
            mean = tokens / self.steps_per_epoch / parts
            lengths.append(up_to(1.0025 * mean + unevenness, TILE))
        return lengths[0], lengths[1]

    def _packed_shapes(self, rows: Rows, parts: int) -> tuple[Shape, Shape]:
        """Return `shape`, or a longer one for pairs that cannot be divided evenly.

        This happens only with few pairs of very different lengths.
        """
        used = _lengths(self.section, rows).sum(0)
        source_length, target_length = self.shape(parts)
        lengths = (_grow(source_length, used[0]), _grow(target_length, used[1]))
        return packed_shapes(lengths)

    def _divide_shard(self, shard: int) -> list[Rows]:
        """Return the rows of each step of a shard."""
        # Collect the pairs that every corpus contributes, and shuffle them together.
        pieces = []
        for stream in self._streams:
            start = shard * stream.drawn // self._shards
            stop = (shard + 1) * stream.drawn // self._shards
            pieces.append(stream.between(start, stop))
        rows = np.concatenate(pieces)
        rows = rows[permutation(len(rows), "pairs", self._seed, shard)]
        lengths = _lengths(self.section, rows)  # (pairs, 2)

        # §5.1: sentence pairs batched together by approximate sequence length.
        if self.layout == "padded":
            longer_side = lengths.max(1)
            order = np.argsort(longer_side, kind="stable")
            rows = rows[order]
            positions = longer_side[order]
            positions_before = np.cumsum(positions) - positions
            step_of = positions_before * self._shard_steps // positions.sum()
        else:
            step_of = deal(lengths, self._shard_steps)

        # Group the rows by step, and shuffle the steps.
        ends = np.cumsum(np.bincount(step_of, minlength=self._shard_steps))
        by_step = np.split(rows[np.argsort(step_of, kind="stable")], ends[:-1])
        order_of_steps = permutation(self._shard_steps, "steps", self._seed, shard)
        return [by_step[step] for step in order_of_steps]


def deal(lengths: NDArray[np.int64], hands: int) -> NDArray[np.int64]:
    """Divide pairs among `hands` so that all get about as many tokens, on each side.

    Pairs are dealt like cards: the longest first, one to each hand a round. A round corrects what
    differs most so far, either the totals or the balance of the two sides: the pair with the most
    goes to the hand with the least.

    Args:
        lengths: (pairs, 2), the source and target length of each pair.
        hands: The number of shares.

    Returns:
        (pairs,), the hand of each pair.
    """
    # Few hands would need many rounds: deal to more hands first, and then deal those hands.
    multiple = _MOST_HANDS // hands
    if multiple > 1 and len(lengths) > multiple * hands:
        small_hands = multiple * hands
        small_hand_of = deal(lengths, small_hands)
        source_sums = np.bincount(small_hand_of, lengths[:, 0], small_hands)
        target_sums = np.bincount(small_hand_of, lengths[:, 1], small_hands)
        sums = np.stack([source_sums, target_sums], axis=1).astype(np.int64)
        return deal(sums, hands)[small_hand_of]

    # Sort by length, and fill the last round with a pair that has no tokens.
    pairs = len(lengths)
    blank = pairs
    rounds = -(-pairs // hands)
    order = np.argsort(-lengths.sum(1), kind="stable")
    fill = np.full(rounds * hands - pairs, blank)
    order = np.concatenate([order, fill]).reshape(rounds, hands)
    lengths = np.concatenate([lengths, [[0, 0]]])

    # Two criteria: the total of both sides, and the difference between them.
    amounts = (lengths.sum(1), lengths[:, 0] - lengths[:, 1])
    held = (np.zeros(hands, np.int64), np.zeros(hands, np.int64))
    hand_of = np.empty(pairs + 1, np.int64)
    for dealt in order:
        criterion = int(np.ptp(held[0]) < np.ptp(held[1]))
        least_first = held[criterion].argsort(kind="stable")
        most_first = dealt[(-amounts[criterion][dealt]).argsort(kind="stable")]
        hand_of[most_first] = least_first
        for sums, amount in zip(held, amounts, strict=True):
            sums[least_first] += amount[most_first]
    return hand_of[:pairs]


def _tokens_per_epoch(streams: Sequence[Stream], side: int) -> int:
    return sum(stream.side_tokens(side) for stream in streams)


def _grow(length: int, used: int) -> int:
    """Return the length, increased by quarters until `used` positions fit."""
    quarters = 0
    while True:
        grown = up_to(length * (1 + quarters / 4), TILE)
        if grown >= used:
            return grown
        quarters += 1


def _lengths(section: Section, rows: Rows) -> NDArray[np.int64]:
    """Return the source and target length of each row, (rows, 2)."""
    return np.stack([section.source.lengths(rows), section.target.lengths(rows)], axis=1)
