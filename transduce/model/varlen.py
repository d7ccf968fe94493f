"""Equation 1 over rows of sentences, in Triton: a tile of queries meets only the keys of its own sentences.

The flash-attention algorithm (Dao et al., 2022) with one change: segments ascend along a row, so the keys that a tile
of queries can meet are one interval, found by bisection before the kernel runs. Tiles are small because sentences are:
at 28 tokens a sentence, tiles of 128 spend most of their products on pairs that the mask then throws away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.errors import ConfigError
from transduce.model.kernels import Places

TILE = 64  # queries, and keys, of one tile
LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _allowed(q_segment, k_segment, q_position, k_position, CAUSAL: tl.constexpr, REACH: tl.constexpr):
    allowed = q_segment == k_segment
    if CAUSAL:
        allowed = allowed & (k_position <= q_position)
    if REACH >= 0:
        allowed = allowed & (tl.abs(k_position - q_position) <= REACH)
    return allowed


@triton.jit
def _tile(base, batch, head, rows, limit, stride_b, stride_h, stride_t, SIZE: tl.constexpr):
    """Rows of one head, (len(rows), SIZE); zero from `limit` on."""
    where = base + batch * stride_b + head * stride_h + rows[:, None] * stride_t + tl.arange(0, SIZE)[None, :]
    return tl.load(where, mask=(rows < limit)[:, None], other=0.0)


@triton.jit
def _put(base, batch, head, rows, limit, stride_b, stride_h, stride_t, values, SIZE: tl.constexpr):
    where = base + batch * stride_b + head * stride_h + rows[:, None] * stride_t + tl.arange(0, SIZE)[None, :]
    tl.store(where, values.to(base.dtype.element_ty), mask=(rows < limit)[:, None])


@triton.jit
def _places(segments, positions, batch, rows, limit, length):
    """Segment and position of rows; from `limit` on a segment that nobody is in."""
    segment = tl.load(segments + batch * length + rows, mask=rows < limit, other=-1)
    return segment, tl.load(positions + batch * length + rows, mask=rows < limit, other=0)


@triton.jit
def _forward(
    q, k, v, o, lse, q_segments, q_positions, k_segments, k_positions, ranges, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr,
):  # fmt: skip
    block, batch, head = tl.program_id(0), tl.program_id(1) // H, tl.program_id(1) % H
    rows = block * TILE + tl.arange(0, TILE)
    queries = _tile(q, batch, head, rows, Q, q_b, q_h, q_t, DK)
    q_segment, q_position = _places(q_segments, q_positions, batch, rows, Q, Q)
    low = tl.load(ranges + (batch * tl.num_programs(0) + block) * 2)
    high = tl.load(ranges + (batch * tl.num_programs(0) + block) * 2 + 1)
    highest = tl.full((TILE,), -1e30, tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    sums = tl.zeros((TILE, DV), tl.float32)
    for start in range(low, high, TILE):
        columns = start + tl.arange(0, TILE)
        keys = _tile(k, batch, head, columns, high, k_b, k_h, k_t, DK)
        values = _tile(v, batch, head, columns, high, v_b, v_h, v_t, DV)
        k_segment, k_position = _places(k_segments, k_positions, batch, columns, high, K)
        allowed = _allowed(
            q_segment[:, None], k_segment[None, :], q_position[:, None], k_position[None, :], CAUSAL, REACH
        )
        scores = tl.where(allowed, tl.dot(queries, tl.trans(keys), input_precision="ieee") * (SCALE * LOG2_E), -1e30)
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.where(allowed, tl.exp2(scores - new_highest[:, None]), 0.0)
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(weights, 1)
        sums = sums * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        highest = new_highest
    # Padding may have nothing to attend to: its output is zero, and an infinite lse makes its gradients zero.
    alone = total == 0.0
    total = tl.where(alone, 1.0, total)
    _put(o, batch, head, rows, Q, o_b, o_h, o_t, sums / total[:, None], DV)
    tl.store(lse + tl.program_id(1) * Q + rows, tl.where(alone, 1e30, highest + tl.log2(total)), mask=rows < Q)


@triton.jit
def _backward_q(
    q, k, v, o, do, dq, lse, delta, q_segments, q_positions, k_segments, k_positions, ranges, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, do_b, do_h, do_t, dq_b, dq_h, dq_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr,
):  # fmt: skip
    block, batch, head = tl.program_id(0), tl.program_id(1) // H, tl.program_id(1) % H
    rows = block * TILE + tl.arange(0, TILE)
    queries = _tile(q, batch, head, rows, Q, q_b, q_h, q_t, DK)
    d_output = _tile(do, batch, head, rows, Q, do_b, do_h, do_t, DV)
    output = _tile(o, batch, head, rows, Q, o_b, o_h, o_t, DV)
    row_delta = tl.sum(output.to(tl.float32) * d_output.to(tl.float32), 1)
    tl.store(delta + tl.program_id(1) * Q + rows, row_delta, mask=rows < Q)
    row_lse = tl.load(lse + tl.program_id(1) * Q + rows, mask=rows < Q, other=1e30)
    q_segment, q_position = _places(q_segments, q_positions, batch, rows, Q, Q)
    low = tl.load(ranges + (batch * tl.num_programs(0) + block) * 2)
    high = tl.load(ranges + (batch * tl.num_programs(0) + block) * 2 + 1)
    sums = tl.zeros((TILE, DK), tl.float32)
    for start in range(low, high, TILE):
        columns = start + tl.arange(0, TILE)
        keys = _tile(k, batch, head, columns, high, k_b, k_h, k_t, DK)
        values = _tile(v, batch, head, columns, high, v_b, v_h, v_t, DV)
        k_segment, k_position = _places(k_segments, k_positions, batch, columns, high, K)
        allowed = _allowed(
            q_segment[:, None], k_segment[None, :], q_position[:, None], k_position[None, :], CAUSAL, REACH
        )
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * (SCALE * LOG2_E)
        weights = tl.where(allowed, tl.exp2(scores - row_lse[:, None]), 0.0)
        d_weights = tl.dot(d_output, tl.trans(values), input_precision="ieee")
        d_scores = weights * (d_weights - row_delta[:, None])
        sums += tl.dot(d_scores.to(keys.dtype), keys, input_precision="ieee")
    _put(dq, batch, head, rows, Q, dq_b, dq_h, dq_t, sums * SCALE, DK)


@triton.jit
def _backward_kv(
    q, k, v, do, dk, dv, lse, delta, q_segments, q_positions, k_segments, k_positions, ranges, Q, K,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, do_b, do_h, do_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    SCALE: tl.constexpr, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, REACH: tl.constexpr,
):  # fmt: skip
    block, batch, head = tl.program_id(0), tl.program_id(1) // H, tl.program_id(1) % H
    columns = block * TILE + tl.arange(0, TILE)
    keys = _tile(k, batch, head, columns, K, k_b, k_h, k_t, DK)
    values = _tile(v, batch, head, columns, K, v_b, v_h, v_t, DV)
    k_segment, k_position = _places(k_segments, k_positions, batch, columns, K, K)
    low = tl.load(ranges + (batch * tl.num_programs(0) + block) * 2)
    high = tl.load(ranges + (batch * tl.num_programs(0) + block) * 2 + 1)
    d_keys = tl.zeros((TILE, DK), tl.float32)
    d_values = tl.zeros((TILE, DV), tl.float32)
    for start in range(low, high, TILE):
        rows = start + tl.arange(0, TILE)
        queries = _tile(q, batch, head, rows, high, q_b, q_h, q_t, DK)
        d_output = _tile(do, batch, head, rows, high, do_b, do_h, do_t, DV)
        row_lse = tl.load(lse + tl.program_id(1) * Q + rows, mask=rows < high, other=1e30)
        row_delta = tl.load(delta + tl.program_id(1) * Q + rows, mask=rows < high, other=0.0)
        q_segment, q_position = _places(q_segments, q_positions, batch, rows, high, Q)
        allowed = _allowed(
            q_segment[None, :], k_segment[:, None], q_position[None, :], k_position[:, None], CAUSAL, REACH
        )
        scores = tl.dot(keys, tl.trans(queries), input_precision="ieee") * (SCALE * LOG2_E)
        weights = tl.where(allowed, tl.exp2(scores - row_lse[None, :]), 0.0)
        d_values += tl.dot(weights.to(d_output.dtype), d_output, input_precision="ieee")
        d_weights = tl.dot(values, tl.trans(d_output), input_precision="ieee")
        d_scores = weights * (d_weights - row_delta[None, :])
        d_keys += tl.dot(d_scores.to(queries.dtype), queries, input_precision="ieee")
    _put(dk, batch, head, columns, K, dk_b, dk_h, dk_t, d_keys * SCALE, DK)
    _put(dv, batch, head, columns, K, dv_b, dv_h, dv_t, d_values, DV)


def meeting_range(segments: Tensor, others: Tensor, *, no_later: bool = False, no_earlier: bool = False) -> Tensor:
    """For each tile of `segments` (B, T), the interval of `others` (B, U) whose segments it holds: (B, T/TILE, 2)."""
    starts = torch.arange(0, segments.size(1), TILE, device=segments.device)
    ends = (starts + TILE).clamp(max=segments.size(1))
    low = torch.searchsorted(others, segments[:, starts].contiguous())
    high = torch.searchsorted(others, segments[:, ends - 1].contiguous(), right=True)
    if no_later:  # causal: nothing after the tile's last query
        high = torch.minimum(high, ends)
    if no_earlier:  # causal, seen from the keys: no query before the tile's first key
        low = torch.maximum(low, starts)
    return torch.stack([low, high], dim=-1).int()


@dataclass(frozen=True)
class VarlenMask:
    """Places of queries and keys, and for each tile of one the interval of the other that it can meet."""

    places: tuple[Tensor, Tensor, Tensor, Tensor]  # segments and positions of queries, then of keys
    key_ranges: Tensor
    query_ranges: Tensor
    causal: bool
    reach: int  # how far to either side, -1 for any distance

    @staticmethod
    def build(queries: Places, keys: Places, *, causal: bool, reach: int) -> VarlenMask:
        """The mask between two sides whose segments ascend along each row."""
        sides = (queries.segments, queries.positions, keys.segments, keys.positions)
        places = tuple(side.contiguous() for side in sides)
        key_ranges = meeting_range(places[0], places[2], no_later=causal)
        query_ranges = meeting_range(places[2], places[0], no_earlier=causal)
        return VarlenMask(places, key_ranges, query_ranges, causal, reach)  # type: ignore[arg-type]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, p_drop: float = 0.0) -> Tensor:
        """Equation 1 by the kernels of this module."""
        if p_drop > 0:
            raise ConfigError(f"the varlen kernel has no attention dropout, but the rate is {p_drop}; use sdpa")
        output: Tensor = VarlenAttention.apply(q, k, v, self)
        return output


class VarlenAttention(torch.autograd.Function):
    """(B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: VarlenMask) -> Tensor:
        q, k, v = map(_in_rows, (q, k, v))
        B, H, Q, _ = q.shape
        o = _side_by_side(q, v.size(3))
        lse = torch.empty(B, H, Q, device=q.device, dtype=torch.float32)
        _forward[(-(-Q // TILE), B * H)](
            q, k, v, o, lse, *mask.places, mask.key_ranges, Q, k.size(2), *_strides(q, k, v, o), **_sizes(q, v, mask)
        )
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mask = mask
        return o

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        d_output = _in_rows(d_output)
        q, k, v, o, lse = ctx.saved_tensors
        mask = ctx.mask
        (B, H, Q, _), K = q.shape, k.size(2)
        dq, dk, dv = (_side_by_side(t, t.size(3)) for t in (q, k, v))
        delta = torch.empty_like(lse)
        sizes = _sizes(q, v, mask)
        _backward_q[(-(-Q // TILE), B * H)](
            q, k, v, o, d_output, dq, lse, delta, *mask.places, mask.key_ranges, Q, K,
            *_strides(q, k, v, o, d_output, dq), **sizes,
        )  # fmt: skip
        _backward_kv[(-(-K // TILE), B * H)](
            q, k, v, d_output, dk, dv, lse, delta, *mask.places, mask.query_ranges, Q, K,
            *_strides(q, k, v, d_output, dk, dv), **sizes,
        )  # fmt: skip
        return dq, dk, dv, None


def _side_by_side(like: Tensor, size: int) -> Tensor:
    """An empty (B, h, T, size) whose heads lie side by side in memory, as the products before and after want them."""
    B, H, T, _ = like.shape
    return like.new_empty(B, T, H, size).transpose(1, 2)


def _in_rows(x: Tensor) -> Tensor:
    """Kernels read a row of (B, h, T, d) as one run; a gradient may be a single number, seen everywhere."""
    return x if x.stride(3) == 1 else x.contiguous()


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def _sizes(q: Tensor, v: Tensor, mask: VarlenMask) -> dict[str, Any]:
    DK, DV = q.size(3), v.size(3)
    return {
        "SCALE": DK**-0.5, "H": q.size(1), "DK": DK, "DV": DV, "TILE": TILE, "CAUSAL": mask.causal, "REACH": mask.reach,
        "num_stages": 1,  # loops are a few tiles long: there is nothing to prefetch
    }  # fmt: skip
