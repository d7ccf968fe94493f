"""Make batches from the pairs of a store: packed into one row, or one sentence per row (§5.1).

Padded and packed batches have the same form: ids, positions and segments, each (B, T). Attention
stays inside a segment, and padding is the last segment of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transduce.data.store import Section
from transduce.errors import DataError

Layout = Literal["packed", "padded"]
Ids = NDArray[np.int32]
Shape = tuple[int, int]

PADDING_SEGMENT = 2**31 - 1
# Fused attention kernels work on tiles of this length: a packed row is a multiple of it.
TILE = 128


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as a model takes them: (B, S) arrays for the source, (B, T) for the target.

    Pair k of a packed row has segment k on both sides. `target` holds the labels, and the pad id
    on padding.
    """

    source: Ids
    source_positions: Ids
    source_segments: Ids
    target: Ids
    target_positions: Ids
    target_segments: Ids
    source_tokens: int  # without padding
    target_tokens: int
    # The numbers of the pairs in their section, in the order of the segments (or rows).
    pairs: NDArray[np.int64]

    @property
    def efficiency(self) -> tuple[float, float]:
        """The shares of source and target positions that hold a token, not padding."""
        return self.source_tokens / self.source.size, self.target_tokens / self.target.size


def pack(
    section: Section, rows: NDArray[np.int64], pads: tuple[int, int], shapes: tuple[Shape, Shape]
) -> Batch:
    """Return pairs as one batch. If the shape has one row they are packed, otherwise padded.

    Args:
        section: The section of the store.
        rows: The rows of the pairs in that section.
        pads: The padding ids of source and target.
        shapes: (B, S) of the source and (B, T) of the target; the pairs must fit.
    """
    packed = shapes[0][0] == 1
    source, source_positions, source_segments, source_tokens = _arrange(
        section.source.gather(rows), section.source.lengths(rows), pads[0], shapes[0], packed
    )
    target, target_positions, target_segments, target_tokens = _arrange(
        section.target.gather(rows), section.target.lengths(rows), pads[1], shapes[1], packed
    )
    return Batch(
        source=source,
        source_positions=source_positions,
        source_segments=source_segments,
        target=target,
        target_positions=target_positions,
        target_segments=target_segments,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        pairs=rows % max(section.pairs, 1),
    )


def in_order(
    section: Section,
    pads: tuple[int, int],
    tokens: int | tuple[int, int],
    layout: Layout = "packed",
) -> Iterator[Batch]:
    """Yield every pair of a section once, in order, for the loss on validation and test sets.

    Args:
        section: The section of the store.
        pads: The padding ids of source and target.
        tokens: The positions of a batch, or (source, target) positions. `Sampler.shape` gives those
            of training.
        layout: Packed batches all have this shape; padded ones hold about as many positions.
    """
    room = (tokens, tokens) if isinstance(tokens, int) else tokens
    source_lengths = np.diff(section.source.offsets).astype(np.int64)
    target_lengths = np.diff(section.target.offsets).astype(np.int64)
    if layout == "packed":
        room = (up_to(room[0], TILE), up_to(room[1], TILE))
    if section.longest > min(room):
        raise DataError(
            f"the longest sentence has {section.longest:,} tokens, but a batch holds "
            f"{min(room):,}; use larger batches"
        )
    start = 0
    while start < section.pairs:
        source_stop = _last_that_fits(source_lengths, start, room[0], layout)
        target_stop = _last_that_fits(target_lengths, start, room[1], layout)
        stop = min(source_stop, target_stop)
        rows = np.arange(start, stop)
        shapes = packed_shapes(room) if layout == "packed" else padded_shapes(section, rows)
        yield pack(section, rows, pads, shapes)
        start = stop


def packed_shapes(lengths: tuple[int, int]) -> tuple[Shape, Shape]:
    """Return the shapes of a packed batch: one row for each side."""
    return (1, lengths[0]), (1, lengths[1])


def padded_shapes(section: Section, rows: NDArray[np.int64], parts: int = 1) -> tuple[Shape, Shape]:
    """Return the shapes of a padded batch that holds one of `parts` shares of the rows.

    Both sides have the same shape, rounded up so that a run has few different shapes.
    """
    longest_source = int(section.source.lengths(rows).max(initial=1))
    longest_target = int(section.target.lengths(rows).max(initial=1))
    sentences = -(-len(rows) // parts)
    shape = (rung(sentences, 8), rung(max(longest_source, longest_target), 4))
    return shape, shape


def up_to(number: float, multiple: int) -> int:
    """Round a number up to a multiple."""
    return int(-(-number // multiple)) * multiple


def rung(number: int, steps: int) -> int:
    """Round a number up to a scale with `steps` steps from each power of two to the next."""
    if number <= 1:
        return 1
    power_below = 1 << (number - 1).bit_length() - 1
    return up_to(number, max(1, power_below // steps))


def _last_that_fits(lengths: NDArray[np.int64], start: int, space: int, layout: Layout) -> int:
    """Return the end of the longest run of sentences from `start` that fits into the space."""
    ahead = lengths[start : start + space]  # a sentence has at least one token
    used = np.cumsum(ahead)
    if layout == "padded":
        used = np.arange(1, len(ahead) + 1) * np.maximum.accumulate(ahead)
    fitting = int(np.searchsorted(used, space, side="right"))
    return start + max(1, fitting)


def _arrange(
    ids: NDArray[Any], lengths: NDArray[np.int64], pad: int, shape: Shape, packed: bool
) -> tuple[Ids, Ids, Ids, int]:
    """Arrange sentences, given one after the other in `ids`, into arrays of one shape.

    Returns:
        ids, positions, segments and the number of tokens.
    """
    if ids.max(initial=0) >= pad:
        raise DataError(
            f"the token store holds the id {ids.max()}, but ids must be below {pad}: it is "
            "damaged; delete it and run transduce prepare again"
        )
    # For each token: its sentence, its position in the sentence, and its place in the array.
    tokens = len(ids)
    starts = np.cumsum(lengths) - lengths
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(tokens) - np.repeat(starts, lengths)
    places = np.arange(tokens) if packed else sentence * shape[1] + positions
    segments = sentence if packed else np.zeros(tokens, np.int64)
    return (
        _place(ids, places, shape, pad),
        _place(positions, places, shape, 0),
        _place(segments, places, shape, PADDING_SEGMENT),
        tokens,
    )


def _place(values: NDArray[Any], places: NDArray[np.int64], shape: Shape, padding: int) -> Ids:
    """Return an array of padding with the values at their places."""
    array = np.full(shape, padding, np.int32)
    array.reshape(-1)[places] = values
    return array
