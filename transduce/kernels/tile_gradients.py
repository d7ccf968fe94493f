"""The gradients of `tile_attention`, with the arguments that are described there, in Triton.

Tiles that hold whole sentences need one kernel for all three gradients (`attend_backward`).
Sentences of several tiles, and heads in slices, need the two loops of flash attention: over keys
for the queries (`attend_backward_q`), and over queries for keys and values (`attend_backward_kv`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from transduce.kernels.tile_attention import (
    LOG2_E,
    find_allowed,
    load_intervals,
    load_places,
    load_rows,
    load_shares,
    products,
    store_rows,
    unless_padding,
)


@triton.jit
def _gradients(scores, d_weights, delta, lse, allowed, SCALE: tl.constexpr):
    """Compute the weights of Equation 1 again, and the gradient of QK^T, both (queries, keys).

    With W the weights, `d_weights` = dO V^T and `delta` = rowsum(O * dO), the gradient through the
    softmax is W * (dW - delta).
    """
    scores *= SCALE * LOG2_E
    weights = tl.exp2(tl.where(allowed, scores - lse[:, None], -1e30))
    return weights, weights * (d_weights - delta[:, None]) * SCALE


@triton.jit
def _delta(
    output, d_output, o, do, batch, head, rows, limit, o_b, o_h, o_t, do_b, do_h, do_t,
    DV: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Compute rowsum(O * dO) of some rows, whose first slices are loaded already."""
    delta = tl.sum(output.to(tl.float32) * d_output.to(tl.float32), 1)
    for number in range(1, SLICES):
        output = load_rows(o + number * DV, batch, head, rows, limit, o_b, o_h, o_t, DV)
        d_output = load_rows(do + number * DV, batch, head, rows, limit, do_b, do_h, do_t, DV)
        delta += tl.sum(output.to(tl.float32) * d_output.to(tl.float32), 1)
    return delta


@triton.jit
def attend_backward(
    q, k, v, o, do, dq, dk, dv, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, do_b, do_h, do_t,
    dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Compute all gradients of tiles that hold whole sentences, PARTS tiles at a time."""
    batch = tl.program_id(1)
    first, count = load_shares(counts, batch, H, PARTS)
    for number in tl.range(tl.program_id(0), count, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, _ = load_intervals(
            q_tiles, k_tiles, batch * P + first + number // H * PARTS
        )
        rows = q_low + tl.arange(0, TILE)
        columns = k_low + tl.arange(0, TILE)

        # Load both sides of the tile.
        queries = load_rows(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
        d_output = load_rows(do, batch, head, rows, q_high, do_b, do_h, do_t, DV)
        output = load_rows(o, batch, head, rows, q_high, o_b, o_h, o_t, DV)
        keys = load_rows(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
        values = load_rows(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
        row_lse = tl.load(lse + (batch * H + head) * Q + rows, mask=rows < q_high, other=1e30)
        q_segment, q_position = load_places(q_segments, q_positions, batch, rows, q_high, Q)
        k_segment, k_position = load_places(k_segments, k_positions, batch, columns, k_high, K)
        allowed = find_allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)

        # Compute and store the gradients.
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
        d_weights = tl.dot(d_output, tl.trans(values), input_precision="ieee")
        delta = tl.sum(output.to(tl.float32) * d_output.to(tl.float32), 1)
        weights, d_scores = _gradients(scores, d_weights, delta, row_lse, allowed, SCALE)
        d_scores = d_scores.to(keys.dtype)
        d_values = tl.dot(tl.trans(weights.to(d_output.dtype)), d_output, input_precision="ieee")
        store_rows(dv, batch, head, columns, k_high, dv_b, dv_h, dv_t, d_values, DV)
        d_queries = tl.dot(d_scores, keys, input_precision="ieee")
        store_rows(dq, batch, head, rows, q_high, dq_b, dq_h, dq_t, d_queries, DK)
        d_keys = tl.dot(tl.trans(d_scores), queries, input_precision="ieee")
        store_rows(dk, batch, head, columns, k_high, dk_b, dk_h, dk_t, d_keys, DK)


@triton.jit
def attend_backward_q(
    q, k, v, o, do, dq, dk, dv, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, do_b, do_h, do_t,
    dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Compute dq of tiles that are part of sentences of more than PARTS tiles.

    A program holds one tile of queries and goes over the keys of its sentences.
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
        output = load_rows(o, batch, head, rows, q_high, o_b, o_h, o_t, DV)
        d_output = load_rows(do, batch, head, rows, q_high, do_b, do_h, do_t, DV)
        delta = _delta(
            output, d_output, o, do, batch, head, rows, q_high, o_b, o_h, o_t, do_b, do_h, do_t,
            DV, SLICES,
        )  # fmt: skip
        row_lse = tl.load(lse + (batch * H + head) * Q + rows, mask=rows < q_high, other=1e30)
        q_segment, q_position = load_places(q_segments, q_positions, batch, rows, q_high, Q)
        k_high = unless_padding(q_segments, batch, q_low, q_high, Q, k_low, k_high)
        if CAUSAL:
            k_high = tl.minimum(k_high, q_low + TILE)

        # Go over the keys.
        d_queries = tl.zeros((TILE, DK), tl.float32)
        for start in range(k_low, k_high, TILE):
            columns = start + tl.arange(0, TILE)
            keys = load_rows(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
            values = load_rows(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
            k_segment, k_position = load_places(k_segments, k_positions, batch, columns, k_high, K)
            allowed = find_allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
            scores = products(
                queries, keys, q, k, batch, head, rows, q_high, q_b, q_h, q_t,
                columns, k_high, k_b, k_h, k_t, DK, SLICES,
            )  # fmt: skip
            d_weights = products(
                d_output, values, do, v, batch, head, rows, q_high, do_b, do_h, do_t,
                columns, k_high, v_b, v_h, v_t, DV, SLICES,
            )  # fmt: skip
            _, d_scores = _gradients(scores, d_weights, delta, row_lse, allowed, SCALE)
            if SLICES > 1:
                keys = load_rows(k + own * DK, batch, head, columns, k_high, k_b, k_h, k_t, DK)
            d_queries += tl.dot(d_scores.to(keys.dtype), keys, input_precision="ieee")
        store_rows(dq + own * DK, batch, head, rows, q_high, dq_b, dq_h, dq_t, d_queries, DK)


@triton.jit
def attend_backward_kv(
    q, k, v, o, do, dq, dk, dv, lse,
    q_segments, q_positions, k_segments, k_positions, q_tiles, k_tiles, counts, P, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, do_b, do_h, do_t,
    dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr, PARTS: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of tiles that are part of sentences of more than PARTS tiles.

    A program holds one tile of keys and goes over the queries of its sentences.
    """
    batch = tl.program_id(1)
    own = tl.program_id(2)
    last = tl.load(counts + batch * 3 + 2 - PARTS) * H
    for number in tl.range(tl.program_id(0), last, tl.num_programs(0), disable_licm=True):
        head = number % H
        q_low, q_high, k_low, k_high, part = load_intervals(
            q_tiles, k_tiles, batch * P + number // H
        )
        k_low += part * TILE
        columns = k_low + tl.arange(0, TILE)

        # Load keys and values, and find the queries that may attend to them.
        keys = load_rows(k, batch, head, columns, k_high, k_b, k_h, k_t, DK)
        values = load_rows(v, batch, head, columns, k_high, v_b, v_h, v_t, DV)
        k_segment, k_position = load_places(k_segments, k_positions, batch, columns, k_high, K)
        if CAUSAL:
            q_low = k_low
        q_high = unless_padding(k_segments, batch, k_low, k_high, K, q_low, q_high)

        # Go over the queries.
        d_keys = tl.zeros((TILE, DK), tl.float32)
        d_values = tl.zeros((TILE, DV), tl.float32)
        for start in range(q_low, q_high, TILE):
            rows = start + tl.arange(0, TILE)
            queries = load_rows(q, batch, head, rows, q_high, q_b, q_h, q_t, DK)
            output = load_rows(o, batch, head, rows, q_high, o_b, o_h, o_t, DV)
            d_output = load_rows(do, batch, head, rows, q_high, do_b, do_h, do_t, DV)
            delta = _delta(
                output, d_output, o, do, batch, head, rows, q_high, o_b, o_h, o_t, do_b, do_h, do_t,
                DV, SLICES,
            )  # fmt: skip
            row_lse = tl.load(lse + (batch * H + head) * Q + rows, mask=rows < q_high, other=1e30)
            q_segment, q_position = load_places(q_segments, q_positions, batch, rows, q_high, Q)
            allowed = find_allowed(q_segment, q_position, k_segment, k_position, CAUSAL, REACH)
            scores = products(
                queries, keys, q, k, batch, head, rows, q_high, q_b, q_h, q_t,
                columns, k_high, k_b, k_h, k_t, DK, SLICES,
            )  # fmt: skip
            d_weights = products(
                d_output, values, do, v, batch, head, rows, q_high, do_b, do_h, do_t,
                columns, k_high, v_b, v_h, v_t, DV, SLICES,
            )  # fmt: skip
            weights, d_scores = _gradients(scores, d_weights, delta, row_lse, allowed, SCALE)
            if SLICES > 1:
                queries = load_rows(q + own * DK, batch, head, rows, q_high, q_b, q_h, q_t, DK)
                d_output = load_rows(do + own * DV, batch, head, rows, q_high, do_b, do_h, do_t, DV)
            d_scores = tl.trans(d_scores.to(queries.dtype))
            d_keys += tl.dot(d_scores, queries, input_precision="ieee")
            d_values += tl.dot(
                tl.trans(weights.to(d_output.dtype)), d_output, input_precision="ieee"
            )
        store_rows(dk + own * DK, batch, head, columns, k_high, dk_b, dk_h, dk_t, d_keys, DK)
        store_rows(dv + own * DV, batch, head, columns, k_high, dv_b, dv_h, dv_t, d_values, DV)
