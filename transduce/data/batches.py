"""Pairs of a store as arrays that a model takes: packed into one row, or one sentence a row (§5.1).

Padding and packing are one thing: ids, positions and segments, each (B, T). Attention stays inside a segment; padding
is the last segment of a row.
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
TILE = 128  # what fused attention kernels work on: a packed row is a multiple of it


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as a model takes them: arrays of (B, S) for the source and (B, T) for the target.

    Pair k of a packed row has the segment k on both sides. `target` are the labels; on padding they are the pad id.
    """

    source: Ids
    source_positions: Ids
    source_segments: Ids
    target: Ids
    target_positions: Ids
    target_segments: Ids
    source_tokens: int  # without padding
    target_tokens: int
    # Which pairs of the section these are, in the order of the segments (or rows).
    pairs: NDArray[np.int64]

    @property
    def efficiency(self) -> tuple[float, float]:
        """The share of source and of target positions that hold a token: 1 less the padding waste."""
        return self.source_tokens / self.source.size, self.target_tokens / self.target.size


def pack(
    section: Section, rows: NDArray[np.int64], pads: tuple[int, int], shapes: tuple[Shape, Shape]
) -> Batch:
    """These pairs as one batch. Into a shape of one row they are packed; else each has a row of its own.

    Args:
        section: Where the pairs are.
        rows: Their numbers there.
        pads: The padding ids of source and target.
        shapes: (B, S) of the source and (B, T) of the target; the pairs must fit.
    """
    packed = shapes[0][0] == 1
    source, source_positions, source_segments, source_tokens = _lay_out(
        section.source.gather(rows), section.source.lengths(rows), pads[0], shapes[0], packed
    )
    target, target_positions, target_segments, target_tokens = _lay_out(
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
    """Every pair of a section once, in order: for losses on validation and test sets.

    Args:
        section: Where the pairs are.
        pads: The padding ids of source and target.
        tokens: Positions of a batch, or (source, target) positions; `Sampler.shape` gives training's own.
        layout: Packed batches all have this one shape; padded ones hold about so many positions.
    """
    room = (tokens, tokens) if isinstance(tokens, int) else tokens
    lengths = [np.diff(side.offsets).astype(np.int64) for side in (section.source, section.target)]
    if layout == "packed":
        room = (up_to(room[0], TILE), up_to(room[1], TILE))
    if section.longest > min(room):
        raise DataError(
            f"the longest sentence has {section.longest:,} tokens, but a batch {min(room):,}; raise it"
        )
    start = 0
    while start < section.pairs:
        stop = min(
            _fits(side, start, space, layout) for side, space in zip(lengths, room, strict=True)
        )
        rows = np.arange(start, stop)
        yield pack(
            section,
            rows,
            pads,
            packed_shapes(room) if layout == "packed" else padded_shapes(section, rows),
        )
        start = stop


def packed_shapes(lengths: tuple[int, int]) -> tuple[Shape, Shape]:
    """One row a side."""
    return (1, lengths[0]), (1, lengths[1])


def padded_shapes(section: Section, rows: NDArray[np.int64], parts: int = 1) -> tuple[Shape, Shape]:
    """One sentence a row, both sides alike; rounded up so that few shapes occur: the share of `rows` in one part."""
    longest = max(
        int(side.lengths(rows).max(initial=1)) for side in (section.source, section.target)
    )
    shape = (rung(-(-len(rows) // parts), 8), rung(longest, 4))
    return shape, shape


def up_to(number: float, multiple: int) -> int:
    """The next multiple."""
    return int(-(-number // multiple)) * multiple


def rung(number: int, steps: int) -> int:
    """The number rounded up to a ladder with so many steps from one power of two to the next."""
    return up_to(number, max(1, (1 << (number - 1).bit_length() - 1) // steps)) if number > 1 else 1


def _fits(lengths: NDArray[np.int64], start: int, space: int, layout: Layout) -> int:
    """The end of the longest run of sentences from `start` that so many positions hold."""
    ahead = lengths[start : start + space]  # a sentence has at least one token
    used = np.cumsum(ahead)
    if layout == "padded":
        used = np.arange(1, len(ahead) + 1) * np.maximum.accumulate(ahead)
    return start + max(1, int(np.searchsorted(used, space, side="right")))


def _lay_out(
    ids: NDArray[Any], lengths: NDArray[np.int64], pad: int, shape: Shape, packed: bool
) -> tuple[Ids, Ids, Ids, int]:
    """(ids, positions, segments, tokens) of sentences that stand one after the other in `ids`."""
    if ids.max(initial=0) >= pad:
        raise DataError(
            f"the token store holds the id {ids.max()}; expected ids below {pad}: it is damaged"
        )
    starts = np.cumsum(lengths) - lengths
    number = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    places = np.arange(len(ids)) if packed else number * shape[1] + positions
    laid = []
    for values, empty in ((ids, pad), (positions, 0), (number if packed else 0, PADDING_SEGMENT)):
        array = np.full(shape, empty, np.int32)
        array.reshape(-1)[places] = values
        laid.append(array)
    return laid[0], laid[1], laid[2], len(ids)
