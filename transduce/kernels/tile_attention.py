"""softmax(QK^T / sqrt(d_k))V, Equation 1 of §3.2.1, over rows of many sentences, in Triton.

This is the flash-attention algorithm (Dao et al., 2022): scores and weights stay on the chip, a
tile of queries and keys at a time, and only the output is written. One thing is different. Rows
hold many sentences, and tiles begin where sentences begin (`tiles.py`), so a tile of queries meets
only the keys of its own sentences. Sentences are short, so nearly every tile holds whole sentences
with all their keys, and needs no loop (`attend`). Only sentences of several tiles need the loop of
flash attention (`attend_long`). Heads of more than 128 elements do not fit on the chip:
`attend_long` reads them in slices of DK and DV elements, for all tiles, and program (i, b, s)
computes slice s of the output. The backward pass is in `tile_gradients`.

The kernels of both modules share their arguments. B is the number of rows, H that of heads, Q and
K are the lengths:

    q, k, v, o          (B, H, Q or K, d_k or d_v): queries, keys, values and output
    do, dq, dk, dv      their gradients
    lse                 (B, H, Q): log2 of each query's sum of exponentials, for the gradients
    *_segments          (B, Q or K): number of the sentence at each place
    *_positions         (B, Q or K): position in its sentence
    q_tiles, k_tiles    (B, P, 3): see `tiles.Tiles.intervals`
    counts              (B, 3): see `tiles.Tiles.counts`
    q_b, q_h, q_t, ...  strides of q (row, head, place) and so on; elements of a head are adjacent

Program (i, b, s) handles row b of the batch: all programs of a row take turns with its tiles and
heads.
"""

from __future__ import annotations

import triton
import triton.language as tl

from transduce.model.tokens import PADDING_SEGMENT

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
PADDING: tl.constexpr = tl.constexpr(PADDING_SEGMENT)


@triton.jit
def find_allowed(
    q_segment, q_position, k_segment, k_position, CAUSAL: tl.constexpr, REACH: tl.constexpr
):
    """Return which of the queries (n,) may attend to which of the keys (m,):  (n, m).

    A query attends to keys of its own sentence; with CAUSAL to those at no later position, and if
    REACH is not negative, to those at most so far away.
    """
    allowed = q_segment[:, None] == k_segment[None, :]
    if CAUSAL:
        allowed = allowed & (k_position[None, :] <= q_position[:, None])
    if REACH >= 0:
        allowed = allowed & (tl.abs(k_position[None, :] - q_position[:, None]) <= REACH)
    return allowed


@triton.jit
def _pointers(base, batch, head, rows, stride_b, stride_h, stride_t, SIZE: tl.constexpr):
    """Return the addresses of some rows of one head, (len(rows), SIZE).

    A batch may have more than 2^31 elements, but one row of it may not: offsets in a row have 32
    bits, which take half the registers.
    """
    first = base + batch.to(tl.int64) * stride_b + head * stride_h
    return first + (rows[:, None] * stride_t + tl.arange(0, SIZE)[None, :])


@triton.jit
def load_rows(base, batch, head, rows, limit, stride_b, stride_h, stride_t, SIZE: tl.constexpr):
    """Load some rows of one head, (len(rows), SIZE); zeros from `limit` on."""
    pointers = _pointers(base, batch, head, rows, stride_b, stride_h, stride_t, SIZE)
    return tl.load(pointers, mask=(rows < limit)[:, None], other=0.0)


@triton.jit
def store_rows(
    base, batch, head, rows, limit, stride_b, stride_h, stride_t, values, SIZE: tl.constexpr
):
    """Store some rows of one head, up to `limit`."""
    pointers = _pointers(base, batch, head, rows, stride_b, stride_h, stride_t, SIZE)
    tl.store(pointers, values.to(base.dtype.element_ty), mask=(rows < limit)[:, None])


@triton.jit
def products(
    a_slice, b_slice, a, b, batch, head, a_rows, a_limit, a_b, a_h, a_t,
    b_rows, b_limit, b_b, b_h, b_t, SIZE: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Compute AB^T of some rows of two tensors, whose first slices are loaded already."""
    sums = tl.dot(a_slice, tl.trans(b_slice), input_precision="ieee")
    for number in range(1, SLICES):
        a_slice = load_rows(a + number * SIZE, batch, head, a_rows, a_limit, a_b, a_h, a_t, SIZE)
        b_slice = load_rows(b + number * SIZE, batch, head, b_rows, b_limit, b_b, b_h, b_t, SIZE)
        sums += tl.dot(a_slice, tl.trans(b_slice), input_precision="ieee")
    return sums


@triton.jit
def load_places(segments, positions, batch, rows, limit, length):
    """Load segments and positions of some places; from `limit` on, a segment that no token has."""
    segment = tl.load(segments + batch * length + rows, mask=rows < limit, other=-1)
    position = tl.load(positions + batch * length + rows, mask=rows < limit, other=0)
    return segment, position


@triton.jit
def load_intervals(q_tiles, k_tiles, place):
    """Load the queries and the keys of a tile's sentences, [q_low, q_high) and [k_low, k_high).

    The last value says which part of the sentences the tile is.
    """
    q_tile = q_tiles + place * 3
    k_tile = k_tiles + place * 3
    q_low = tl.load(q_tile)
    q_high = tl.load(q_tile + 1)
    k_low = tl.load(k_tile)
    k_high = tl.load(k_tile + 1)
    part = tl.load(q_tile + 2)
    return q_low, q_high, k_low, k_high, part


@triton.jit
def unless_padding(segments, batch, place, limit, length, low, high):
    """Return `high`, the end of an interval, or `low`, so that it is empty, if a place is padding.

    Padding can be long, and computing it would take time. A group of sentences has as many parts as
    its longer side needs; on the other side a part may begin after `limit`.
    """
    segment = tl.load(segments + batch * length + place, mask=place < limit, other=PADDING)
    return tl.where(segment == PADDING, low, high)


@triton.jit
def load_shares(counts, batch, H: tl.constexpr, PARTS: tl.constexpr):
    """Return the first tile of groups of PARTS tiles, and the number of these, times heads."""
    first = tl.load(counts + batch * 3 + 2 - PARTS)
    count = (tl.load(counts + batch * 3 + 3 - PARTS) - first) // PARTS * H
    return first, count


@triton.jit
def attend(
    q, k, v, o, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Attend in tiles that hold whole sentences with all their keys, PARTS tiles at a time."""
    batch = tl.program_id(1)
    first, count = load_shares(counts, batch, H, PARTS)
    for number in tl.range(tl.program_id(0), count, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, _ = load_intervals(
            q_tiles, k_tiles, batch * P + first + number // H * PARTS
        )
        rows = q_low + tl.arange(0, TILE)
        columns = k_low + tl.arange(0, TILE)

        # Load a tile of queries, and the keys and values of the same sentences.
        queries = load_rows(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
        keys = load_rows(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
        values = load_rows(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
        q_segment, q_position = load_places(q_segments, q_positions, batch, rows, q_high, Q)
        k_segment, k_position = load_places(k_segments, k_positions, batch, columns, k_high, K)
        allowed = find_allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)

        # Scores, softmax (by powers of two, which are faster) and the sum of values.
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * (SCALE * LOG2_E)
        scores = tl.where(allowed, scores, -1e30)
        # Where no key is allowed, scores are far below this maximum, and all weights become 0.
        highest = tl.maximum(tl.max(scores, 1), -1e29)
        weights = tl.exp2(scores - highest[:, None])
        total = tl.sum(weights, 1)
        sums = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        _finish(o, lse, batch, head, rows, q_high, Q, o_b, o_h, o_t, highest, total, sums, H, DV)


@triton.jit
def _finish(
    o, lse, batch, head, rows, limit, Q, o_b, o_h, o_t, highest, total, sums,
    H: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Divide by the sum of weights, and store output and lse.

    Padding may have no keys at all. Its output is zero, and a huge lse makes its gradients zero.
    """
    alone = total == 0.0
    total = tl.where(alone, 1.0, total)
    store_rows(o, batch, head, rows, limit, o_b, o_h, o_t, sums * (1.0 / total)[:, None], DV)
    logs = tl.where(alone, 1e30, highest + tl.log2(total))
    tl.store(lse + (batch * H + head) * Q + rows, logs, mask=rows < limit)


@triton.jit
def attend_long(
    q, k, v, o, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Attend from tiles that are part of sentences of more than PARTS tiles.

    A program holds one tile of queries and goes over the keys of its sentences. The sums are kept
    relative to the highest score so far, and rescaled whenever there is a higher one.
    """
    batch = tl.program_id(1)
    own = tl.program_id(2)
    last = tl.load(counts + batch * 3 + 2 - PARTS) * H
    for number in tl.range(tl.program_id(0), last, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, part = load_intervals(
            q_tiles, k_tiles, batch * P + number // H
        )
        q_low += part * TILE
        rows = q_low + tl.arange(0, TILE)

        # Load the queries, and find the keys that they may attend to.
        queries = load_rows(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
        q_segment, q_position = load_places(q_segments, q_positions, batch, rows, q_high, Q)
        k_high = unless_padding(q_segments, batch, q_low, q_high, Q, k_low, k_high)
        if CAUSAL:
            k_high = tl.minimum(k_high, q_low + TILE)

        # Go over the keys.
        highest = tl.full((TILE,), -1e30, tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        sums = tl.zeros((TILE, DV), tl.float32)
        for start in range(k_low, k_high, TILE):
            columns = start + tl.arange(0, TILE)
            keys = load_rows(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
            values = load_rows(v + own * DV, batch, head, columns, k_high, v_b, v_h, v_t, DV)
            k_segment, k_position = load_places(k_segments, k_positions, batch, columns, k_high, K)
            allowed = find_allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
            scores = products(
                queries, keys, q, k, batch, head, rows, q_high, q_b, q_h, q_t,
                columns, k_high, k_b, k_h, k_t, DK, SLICES,
            )  # fmt: skip
            scores = tl.where(allowed, scores * (SCALE * LOG2_E), -1e30)
            new_highest = tl.maximum(highest, tl.max(scores, 1))
            weights = tl.where(allowed, tl.exp2(scores - new_highest[:, None]), 0.0)
            rescale = tl.exp2(highest - new_highest)
            total = total * rescale + tl.sum(weights, 1)
            sums = sums * rescale[:, None] + tl.dot(
                weights.to(values.dtype), values, input_precision="ieee"
            )
            highest = new_highest
        own_o = o + own * DV
        _finish(
            own_o, lse, batch, head, rows, q_high, Q, o_b, o_h, o_t, highest, total, sums, H, DV
        )
