"""Dropout(embedding + position), §3.4 and §3.5, in one pass, and the gradient of the matrix, in Triton.

Tokens come again and again: the gradients of all places of a token are added up. Places in the order of their tokens
are cut into chunks, a chunk is summed by one product, and what goes on in the next chunk is joined afterwards. The
order of additions is always the same.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.residual import ROWS, WARPS, kept

CHUNK = 64  # places that are summed by one product


@triton.jit
def _embed(
    weight, ids, positions, seed, y, count, SINUSOIDS: tl.constexpr, SCALE: tl.constexpr,
    P_DROP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    places = rows[:, None].to(tl.int64) * D + columns[None, :]
    token = tl.load(ids + rows, mask=rows < count, other=0).to(tl.int64)
    value = (
        tl.load(weight + token[:, None] * D + columns[None, :], mask=inside, other=0.0).to(
            tl.float32
        )
        * SCALE
    )
    value = value.to(y.dtype.element_ty).to(tl.float32)  # rounded where the plain formula rounds
    if SINUSOIDS:
        position = tl.load(positions + rows, mask=rows < count, other=0).to(tl.float32)
        angle = (
            position[:, None]
            * tl.exp2((columns // 2 * 2).to(tl.float32) * (-13.287712379549449 / D))[None, :]
        )
        # 13.29 is log2 of 10,000.
        sinusoid = tl.where((columns % 2 == 0)[None, :], tl.sin(angle), tl.cos(angle))
        value += sinusoid.to(y.dtype.element_ty).to(tl.float32)
    if P_DROP > 0:
        value = tl.where(kept(tl.load(seed), places, P_DROP), value * (1 / (1 - P_DROP)), 0.0)
    tl.store(y + places, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _sum_tokens(
    dy, tokens, order, seed, d_weight, edges, count, V, SCALE: tl.constexpr, P_DROP: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The sums of one chunk, into the rows of their tokens, and of those that other chunks share into its edges."""
    chunk, numbers = tl.program_id(0), tl.arange(0, CHUNK)
    places, columns = chunk * CHUNK + numbers, tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    token = tl.load(tokens + places, mask=places < count, other=V - 1)
    where = tl.load(order + places, mask=places < count, other=0)[:, None] * D + columns[None, :]
    wanted = columns < D
    # Padding, the last id, is always the zero vector: it has no gradient.
    gradient = tl.load(dy + where, mask=(token < V - 1)[:, None] & wanted[None, :], other=0.0)
    if P_DROP > 0:
        gradient = tl.where(kept(tl.load(seed), where, P_DROP), gradient, 0.0)
    before = tl.load(tokens + places - 1, mask=(numbers > 0) & (places <= count), other=-1)
    mine = (
        tl.cumsum(((numbers > 0) & (token != before)).to(tl.int32), 0)[None, :] == numbers[:, None]
    )
    sums = tl.dot(mine.to(gradient.dtype), gradient, input_precision="ieee") * (
        SCALE / (1 - P_DROP)
    )
    of = tl.max(tl.where(mine, token[None, :], -1), 1)  # the token of each sum
    # -2 is nobody's: not even that of a sum of nothing.
    earlier = of == tl.load(tokens + chunk * CHUNK - 1, mask=chunk > 0, other=-2)
    later = of == tl.load(tokens + (chunk + 1) * CHUNK, mask=(chunk + 1) * CHUNK < count, other=-2)
    rows = d_weight + of[:, None].to(tl.int64) * D + columns[None, :]
    tl.store(rows, sums.to(d_weight.dtype.element_ty), mask=(of >= 0)[:, None] & wanted[None, :])
    edge = edges + (chunk * 2 + tl.where(earlier, 0, 1))[:, None] * D + columns[None, :]
    tl.store(edge, sums, mask=(earlier | later)[:, None] & wanted[None, :])


@triton.jit
def _join_edges(
    tokens,
    d_weight,
    edges,
    count,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """A token that begins in one chunk and goes on: the sums at its edges."""
    chunk, columns = tl.program_id(0), tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wanted = columns < D
    token = tl.load(tokens + (chunk + 1) * CHUNK, mask=(chunk + 1) * CHUNK < count, other=-1)
    begins = token != tl.load(tokens + chunk * CHUNK - 1, mask=chunk > 0, other=-2)
    if (
        begins
        & (token >= 0)
        & (token == tl.load(tokens + tl.minimum((chunk + 1) * CHUNK, count) - 1))
    ):
        total = tl.load(edges + (chunk * 2 + 1) * D + columns, mask=wanted, other=0.0)
        going = True
        while going:
            chunks = chunk + 1 + tl.arange(0, CHUNKS)
            same = tl.load(tokens + chunks * CHUNK, mask=chunks * CHUNK < count, other=-1) == token
            theirs = edges + chunks[:, None] * 2 * D + columns[None, :]
            total += tl.sum(tl.load(theirs, mask=same[:, None] & wanted[None, :], other=0.0), 0)
            chunk += CHUNKS
            going = tl.min(same.to(tl.int32), 0) == 1
        tl.store(
            d_weight + token.to(tl.int64) * D + columns,
            total.to(d_weight.dtype.element_ty),
            mask=wanted,
        )


class Embedded(torch.autograd.Function):
    """The matrix (V, d_model), ids and positions (B, T) -> Dropout(scale * embedding + sinusoid), (B, T, d_model).

    The sinusoid is left out for models that place tokens in another way.
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, ids: Tensor, positions: Tensor, seed: Tensor,
        scale: float, p_drop: float, sinusoids: bool,
    ) -> Tensor:  # fmt: skip
        ids, D = ids.contiguous(), weight.size(1)
        y = weight.new_empty(*ids.shape, D)
        _embed[(-(-ids.numel() // ROWS),)](
            weight, ids, positions.contiguous(), seed, y, ids.numel(),
            SINUSOIDS=sinusoids, SCALE=scale, P_DROP=p_drop, D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS,
            num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(ids, seed)
        ctx.shape, ctx.scale, ctx.p_drop = weight.shape, scale, p_drop
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        ids, seed = ctx.saved_tensors
        dy, (V, D) = dy.contiguous(), ctx.shape
        tokens, order = ids.flatten().sort(stable=True)
        chunks, width = -(-len(tokens) // CHUNK), max(16, min(128, triton.next_power_of_2(D)))
        d_weight = dy.new_zeros(V, D)
        edges = torch.empty(chunks, 2, D, device=dy.device, dtype=torch.float32)
        grid = (chunks, -(-D // width))
        _sum_tokens[grid](
            dy, tokens, order, seed, d_weight, edges, len(tokens), V,
            SCALE=ctx.scale, P_DROP=ctx.p_drop, D=D, WIDTH=width, CHUNK=CHUNK,
        )  # fmt: skip
        _join_edges[grid](
            tokens, d_weight, edges, len(tokens), D=D, WIDTH=width, CHUNK=CHUNK, CHUNKS=16
        )
        return d_weight, *[None] * 6
