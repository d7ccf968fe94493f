"""The kernels of `varlen`, in Triton: tiles of queries and keys of the same sentences, forward and backward.

The flash-attention algorithm (Dao et al., 2022) with one change: tiles begin where sentences begin (`tiles.py`).
Sentences are short, so nearly every tile holds whole sentences with all their keys: its forward pass needs no loop,
and its backward pass is one kernel for all gradients. Only a sentence that takes several tiles needs more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from transduce.model.tokens import PADDING_SEGMENT

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
PADDING: tl.constexpr = tl.constexpr(PADDING_SEGMENT)


@triton.jit
def _allowed(
    q_segment, q_position, k_segment, k_position, CAUSAL: tl.constexpr, REACH: tl.constexpr
):
    """Which of the queries (n,) may attend to which of the keys (m,)."""
    allowed = q_segment[:, None] == k_segment[None, :]
    if CAUSAL:
        allowed = allowed & (k_position[None, :] <= q_position[:, None])
    if REACH >= 0:
        allowed = allowed & (tl.abs(k_position[None, :] - q_position[:, None]) <= REACH)
    return allowed


@triton.jit
def _where(base, batch, head, rows, stride_b, stride_h, stride_t, SIZE: tl.constexpr):
    """A batch may have more than 2^31 numbers, a row of it not: in 32 bits its offsets take half the registers."""
    first = base + batch.to(tl.int64) * stride_b + head * stride_h
    return first + (rows[:, None] * stride_t + tl.arange(0, SIZE)[None, :])


@triton.jit
def _tile(base, batch, head, rows, limit, stride_b, stride_h, stride_t, SIZE: tl.constexpr):
    """Rows of one head, (len(rows), SIZE); zero from `limit` on."""
    where = _where(base, batch, head, rows, stride_b, stride_h, stride_t, SIZE)
    return tl.load(where, mask=(rows < limit)[:, None], other=0.0)


@triton.jit
def _put(base, batch, head, rows, limit, stride_b, stride_h, stride_t, values, SIZE: tl.constexpr):
    where = _where(base, batch, head, rows, stride_b, stride_h, stride_t, SIZE)
    tl.store(where, values.to(base.dtype.element_ty), mask=(rows < limit)[:, None])


@triton.jit
def _places(segments, positions, batch, rows, limit, length):
    """Segment and position of rows; from `limit` on a segment that nobody is in."""
    segment = tl.load(segments + batch * length + rows, mask=rows < limit, other=-1)
    return segment, tl.load(positions + batch * length + rows, mask=rows < limit, other=0)


@triton.jit
def _meeting(q_tiles, k_tiles, place):
    """The sentences of a tile: their interval of queries and of keys, and which part of them it is."""
    q_here, k_here = q_tiles + place * 3, k_tiles + place * 3
    return (
        tl.load(q_here),
        tl.load(q_here + 1),
        tl.load(k_here),
        tl.load(k_here + 1),
        tl.load(q_here + 2),
    )


@triton.jit
def _unless_padding(segments, batch, place, limit, length, low, high):
    """Where an interval ends: at once, if a place is in no sentence. Padding can be long, and nobody waits for it.

    A group has as many parts as its longer side needs: on the other one they may lie beyond its limit.
    """
    segment = tl.load(segments + batch * length + place, mask=place < limit, other=PADDING)
    return tl.where(segment == PADDING, low, high)


@triton.jit
def _shares(counts, batch, H: tl.constexpr, PARTS: tl.constexpr):
    """The first tile of sentences that take PARTS tiles, and how many such sentences there are, times heads."""
    first = tl.load(counts + batch * 3 + 2 - PARTS)
    return first, (tl.load(counts + batch * 3 + 3 - PARTS) - first) // PARTS * H


@triton.jit
def attend(
    q, k, v, o, lse, q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Tiles that hold whole sentences with all their keys."""
    batch = tl.program_id(1)
    first, count = _shares(counts, batch, H, PARTS)
    for number in tl.range(tl.program_id(0), count, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, _ = _meeting(
            q_tiles, k_tiles, batch * P + first + number // H * PARTS
        )
        rows, columns = q_low + tl.arange(0, TILE), k_low + tl.arange(0, TILE)
        queries = _tile(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
        keys = _tile(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
        values = _tile(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
        q_segment, q_position = _places(q_segments, q_positions, batch, rows, q_high, Q)
        k_segment, k_position = _places(k_segments, k_positions, batch, columns, k_high, K)
        allowed = _allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * (SCALE * LOG2_E)
        scores = tl.where(allowed, scores, -1e30)
        # Where nothing is allowed, nothing has a weight.
        highest = tl.maximum(tl.max(scores, 1), -1e29)
        weights = tl.exp2(scores - highest[:, None])
        total = tl.sum(weights, 1)
        sums = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        _finish(o, lse, batch, head, rows, q_high, Q, o_b, o_h, o_t, highest, total, sums, H, DV)


@triton.jit
def _finish(
    o,
    lse,
    batch,
    head,
    rows,
    limit,
    Q,
    o_b,
    o_h,
    o_t,
    highest,
    total,
    sums,
    H: tl.constexpr,
    DV: tl.constexpr,
):
    """Padding may have nothing to attend to: its output is zero, and an infinite lse makes its gradients zero."""
    alone = total == 0.0
    total = tl.where(alone, 1.0, total)
    _put(o, batch, head, rows, limit, o_b, o_h, o_t, sums * (1.0 / total)[:, None], DV)
    logs = tl.where(alone, 1e30, highest + tl.log2(total))
    tl.store(lse + (batch * H + head) * Q + rows, logs, mask=rows < limit)


@triton.jit
def attend_long(
    q, k, v, o, lse, q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Tiles that are part of sentences of more than PARTS tiles."""
    batch = tl.program_id(1)
    last = tl.load(counts + batch * 3 + 2 - PARTS) * H
    for number in tl.range(tl.program_id(0), last, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, part = _meeting(q_tiles, k_tiles, batch * P + number // H)
        q_low += part * TILE
        rows = q_low + tl.arange(0, TILE)
        queries = _tile(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
        q_segment, q_position = _places(q_segments, q_positions, batch, rows, q_high, Q)
        k_high = _unless_padding(q_segments, batch, q_low, q_high, Q, k_low, k_high)
        if CAUSAL:
            k_high = tl.minimum(k_high, q_low + TILE)
        highest = tl.full((TILE,), -1e30, tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        sums = tl.zeros((TILE, DV), tl.float32)
        for start in range(k_low, k_high, TILE):
            columns = start + tl.arange(0, TILE)
            keys = _tile(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
            values = _tile(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
            k_segment, k_position = _places(k_segments, k_positions, batch, columns, k_high, K)
            allowed = _allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * (SCALE * LOG2_E)
            scores = tl.where(allowed, scores, -1e30)
            new_highest = tl.maximum(highest, tl.max(scores, 1))
            weights = tl.where(allowed, tl.exp2(scores - new_highest[:, None]), 0.0)
            rescale = tl.exp2(highest - new_highest)
            total = total * rescale + tl.sum(weights, 1)
            sums = sums * rescale[:, None] + tl.dot(
                weights.to(values.dtype), values, input_precision="ieee"
            )
            highest = new_highest
        _finish(o, lse, batch, head, rows, q_high, Q, o_b, o_h, o_t, highest, total, sums, H, DV)


@triton.jit
def _gradients(queries, keys, values, output, d_output, lse, allowed, SCALE: tl.constexpr):
    """The weights of Equation 1 again, (queries, keys), and the gradient of the product of queries and keys."""
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * (SCALE * LOG2_E)
    weights = tl.exp2(tl.where(allowed, scores - lse[:, None], -1e30))
    d_weights = tl.dot(d_output, tl.trans(values), input_precision="ieee")
    delta = tl.sum(output.to(tl.float32) * d_output.to(tl.float32), 1)
    return weights, (weights * (d_weights - delta[:, None]) * SCALE).to(keys.dtype)


@triton.jit
def attend_backward(
    q, k, v, o, do, dq, dk, dv, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, do_b, do_h, do_t,
    dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Tiles that hold whole sentences with all their keys: every gradient at once."""
    batch = tl.program_id(1)
    first, count = _shares(counts, batch, H, PARTS)
    for number in tl.range(tl.program_id(0), count, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, _ = _meeting(
            q_tiles, k_tiles, batch * P + first + number // H * PARTS
        )
        rows, columns = q_low + tl.arange(0, TILE), k_low + tl.arange(0, TILE)
        queries = _tile(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
        d_output = _tile(do, batch, head, rows, q_high, do_b, do_h, do_t, DV)
        output = _tile(o, batch, head, rows, q_high, o_b, o_h, o_t, DV)
        keys = _tile(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
        values = _tile(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
        row_lse = tl.load(lse + (batch * H + head) * Q + rows, mask=rows < q_high, other=1e30)
        q_segment, q_position = _places(q_segments, q_positions, batch, rows, q_high, Q)
        k_segment, k_position = _places(k_segments, k_positions, batch, columns, k_high, K)
        allowed = _allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
        weights, d_scores = _gradients(
            queries, keys, values, output, d_output, row_lse, allowed, SCALE
        )
        d_values = tl.dot(tl.trans(weights.to(d_output.dtype)), d_output, input_precision="ieee")
        _put(dv, batch, head, columns, k_high, dv_b, dv_h, dv_t, d_values, DV)
        d_queries = tl.dot(d_scores, keys, input_precision="ieee")
        _put(dq, batch, head, rows, q_high, dq_b, dq_h, dq_t, d_queries, DK)
        d_keys = tl.dot(tl.trans(d_scores), queries, input_precision="ieee")
        _put(dk, batch, head, columns, k_high, dk_b, dk_h, dk_t, d_keys, DK)


@triton.jit
def attend_backward_q(
    q, k, v, o, do, dq, dk, dv, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, do_b, do_h, do_t,
    dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Tiles that are part of sentences of more than PARTS tiles: the gradient of their queries."""
    batch = tl.program_id(1)
    last = tl.load(counts + batch * 3 + 2 - PARTS) * H
    for number in tl.range(tl.program_id(0), last, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, part = _meeting(q_tiles, k_tiles, batch * P + number // H)
        q_low += part * TILE
        rows = q_low + tl.arange(0, TILE)
        queries = _tile(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
        output = _tile(o, batch, head, rows, q_high, o_b, o_h, o_t, DV)
        d_output = _tile(do, batch, head, rows, q_high, do_b, do_h, do_t, DV)
        row_lse = tl.load(lse + (batch * H + head) * Q + rows, mask=rows < q_high, other=1e30)
        q_segment, q_position = _places(q_segments, q_positions, batch, rows, q_high, Q)
        k_high = _unless_padding(q_segments, batch, q_low, q_high, Q, k_low, k_high)
        if CAUSAL:
            k_high = tl.minimum(k_high, q_low + TILE)
        d_queries = tl.zeros((TILE, DK), tl.float32)
        for start in range(k_low, k_high, TILE):
            columns = start + tl.arange(0, TILE)
            keys = _tile(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
            values = _tile(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
            k_segment, k_position = _places(k_segments, k_positions, batch, columns, k_high, K)
            allowed = _allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
            _, d_scores = _gradients(
                queries, keys, values, output, d_output, row_lse, allowed, SCALE
            )
            d_queries += tl.dot(d_scores, keys, input_precision="ieee")
        _put(dq, batch, head, rows, q_high, dq_b, dq_h, dq_t, d_queries, DK)


@triton.jit
def attend_backward_kv(
    q, k, v, o, do, dq, dk, dv, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, do_b, do_h, do_t,
    dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The same tiles: the gradients of their keys and values."""
    batch = tl.program_id(1)
    last = tl.load(counts + batch * 3 + 2 - PARTS) * H
    for number in tl.range(tl.program_id(0), last, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, part = _meeting(q_tiles, k_tiles, batch * P + number // H)
        k_low += part * TILE
        columns = k_low + tl.arange(0, TILE)
        keys = _tile(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
        values = _tile(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
        k_segment, k_position = _places(k_segments, k_positions, batch, columns, k_high, K)
        if CAUSAL:
            q_low = k_low
        q_high = _unless_padding(k_segments, batch, k_low, k_high, K, q_low, q_high)
        d_keys = tl.zeros((TILE, DK), tl.float32)
        d_values = tl.zeros((TILE, DV), tl.float32)
        for start in range(q_low, q_high, TILE):
            rows = start + tl.arange(0, TILE)
            queries = _tile(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
            output = _tile(o, batch, head, rows, q_high, o_b, o_h, o_t, DV)
            d_output = _tile(do, batch, head, rows, q_high, do_b, do_h, do_t, DV)
            row_lse = tl.load(lse + (batch * H + head) * Q + rows, mask=rows < q_high, other=1e30)
            q_segment, q_position = _places(q_segments, q_positions, batch, rows, q_high, Q)
            allowed = _allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
            weights, d_scores = _gradients(
                queries, keys, values, output, d_output, row_lse, allowed, SCALE
            )
            d_keys += tl.dot(tl.trans(d_scores), queries, input_precision="ieee")
            d_values += tl.dot(
                tl.trans(weights.to(d_output.dtype)), d_output, input_precision="ieee"
            )
        _put(dk, batch, head, columns, k_high, dk_b, dk_h, dk_t, d_keys, DK)
        _put(dv, batch, head, columns, k_high, dv_b, dv_h, dv_t, d_values, DV)
