"""Dropout(sqrt(d_model) * embedding + sinusoid), §3.4, §3.5 and §5.4, in one kernel, in Triton.

Torch takes a kernel for each of lookup, scale, sinusoids, sum and dropout; here every element is
written once, and the sinusoids are computed where they are added.

The gradient of the matrix is, for each token, the sum over all places where the token occurs.
Atomic additions would sum in another order at every run. Instead, the places are sorted by token
and cut into chunks of CHUNK. `_sum_tokens` sums each chunk by one product with a 0/1 matrix. The
sum of a token that goes on in the next chunk is put into `edges`, and `_join_edges` adds those up.
The order of additions is always the same.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.residual import ROWS, WARPS, kept

CHUNK = 64  # places that are summed by one product
LOG2_OF_10_000: tl.constexpr = tl.constexpr(13.287712379549449)


@triton.jit
def _embed(
    weight, ids, positions, seed, y, count, SINUSOIDS: tl.constexpr, SCALE: tl.constexpr,
    P_DROP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute y = Dropout(SCALE * weight[ids] + sinusoid(positions)), the sinusoid with SINUSOIDS.

    weight is (V, D), ids and positions (count,), y (count, D). A program handles ROWS rows of y.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    places = rows[:, None].to(tl.int64) * D + columns[None, :]

    # Look up the embeddings.
    token = tl.load(ids + rows, mask=rows < count, other=0).to(tl.int64)
    row = weight + token[:, None] * D + columns[None, :]
    value = tl.load(row, mask=inside, other=0.0).to(tl.float32) * SCALE
    value = value.to(y.dtype.element_ty).to(tl.float32)  # rounded where the plain formula rounds

    # Add sin or cos of position / 10,000^(2i / D).
    if SINUSOIDS:
        position = tl.load(positions + rows, mask=rows < count, other=0).to(tl.float32)
        frequency = tl.exp2((columns // 2 * 2).to(tl.float32) * (-LOG2_OF_10_000 / D))
        angle = position[:, None] * frequency[None, :]
        sinusoid = tl.where((columns % 2 == 0)[None, :], tl.sin(angle), tl.cos(angle))
        value += sinusoid.to(y.dtype.element_ty).to(tl.float32)

    # Drop and store.
    if P_DROP > 0:
        value = tl.where(kept(tl.load(seed), places, P_DROP), value * (1 / (1 - P_DROP)), 0.0)
    tl.store(y + places, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _sum_tokens(
    dy, tokens, order, seed, d_weight, edges, count, V, SCALE: tl.constexpr, P_DROP: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of one chunk by token, into the rows of d_weight.

    dy is (count, D); tokens (count,) are the sorted ids, and order (count,) says where they are in
    dy. d_weight is (V, D) and edges (chunks, 2, D): the sum of a token that goes on from the
    previous chunk is stored in edges[chunk, 0], that of one that goes on in the next chunk in
    edges[chunk, 1].

    Program (i, j) handles chunk i and the WIDTH columns of number j.
    """
    chunk = tl.program_id(0)
    numbers = tl.arange(0, CHUNK)
    places = chunk * CHUNK + numbers
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)

    # Load the gradients.
    token = tl.load(tokens + places, mask=places < count, other=V - 1)
    where = tl.load(order + places, mask=places < count, other=0)[:, None] * D + columns[None, :]
    wanted = columns < D
    # Padding, the last id, has no gradient.
    gradient = tl.load(dy + where, mask=(token < V - 1)[:, None] & wanted[None, :], other=0.0)
    if P_DROP > 0:
        gradient = tl.where(kept(tl.load(seed), where, P_DROP), gradient, 0.0)

    # Sum i belongs to the i-th different token of the chunk: a 0/1 matrix selects its places.
    before = tl.load(tokens + places - 1, mask=(numbers > 0) & (places <= count), other=-1)
    begins = (numbers > 0) & (token != before)
    selected = tl.cumsum(begins.to(tl.int32), 0)[None, :] == numbers[:, None]  # (sums, places)
    sums = tl.dot(selected.to(gradient.dtype), gradient, input_precision="ieee") * (
        SCALE / (1 - P_DROP)
    )
    token_of_sum = tl.max(tl.where(selected, token[None, :], -1), 1)  # -1 where there is no sum

    # Store each sum, and those of tokens that neighbouring chunks have too in the edges as well.
    # -2 equals no token, not even that of an empty sum.
    earlier = token_of_sum == tl.load(tokens + chunk * CHUNK - 1, mask=chunk > 0, other=-2)
    later = token_of_sum == tl.load(
        tokens + (chunk + 1) * CHUNK, mask=(chunk + 1) * CHUNK < count, other=-2
    )
    rows = d_weight + token_of_sum[:, None].to(tl.int64) * D + columns[None, :]
    exists = token_of_sum >= 0
    tl.store(rows, sums.to(d_weight.dtype.element_ty), mask=exists[:, None] & wanted[None, :])
    edge = edges + (chunk * 2 + tl.where(earlier, 0, 1))[:, None] * D + columns[None, :]
    tl.store(edge, sums, mask=(earlier | later)[:, None] & wanted[None, :])


@triton.jit
def _join_edges(
    tokens, d_weight, edges, count,
    D: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Add up the sums of a token that begins in one chunk and goes on in the next ones.

    Program (i, j) handles the token that begins in chunk i and is the first of chunk i + 1, if
    there is one, and the WIDTH columns of number j. It reads CHUNKS edges at a time.
    """
    chunk = tl.program_id(0)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wanted = columns < D

    # Find the token that crosses the border after this chunk, if it begins in the chunk.
    token = tl.load(tokens + (chunk + 1) * CHUNK, mask=(chunk + 1) * CHUNK < count, other=-1)
    begins = token != tl.load(tokens + chunk * CHUNK - 1, mask=chunk > 0, other=-2)
    if (
        begins
        & (token >= 0)
        & (token == tl.load(tokens + tl.minimum((chunk + 1) * CHUNK, count) - 1))
    ):
        # Start with its sum in the chunk where it begins.
        total = tl.load(edges + (chunk * 2 + 1) * D + columns, mask=wanted, other=0.0)

        # Add its sums in the next chunks, as long as these begin with the same token.
        goes_on = True
        while goes_on:
            chunks = chunk + 1 + tl.arange(0, CHUNKS)
            same = tl.load(tokens + chunks * CHUNK, mask=chunks * CHUNK < count, other=-1) == token
            first_sums = edges + chunks[:, None] * 2 * D + columns[None, :]
            total += tl.sum(tl.load(first_sums, mask=same[:, None] & wanted[None, :], other=0.0), 0)
            chunk += CHUNKS
            goes_on = tl.min(same.to(tl.int32), 0) == 1
        tl.store(
            d_weight + token.to(tl.int64) * D + columns,
            total.to(d_weight.dtype.element_ty),
            mask=wanted,
        )


class Embedded(torch.autograd.Function):
    """Dropout(scale * embedding + sinusoid).

    The matrix (V, d_model), ids and positions (B, T) -> (B, T, d_model). Without `sinusoids`
    nothing is added, for models with other kinds of positions.
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, ids: Tensor, positions: Tensor, seed: Tensor,
        scale: float, p_drop: float, sinusoids: bool,
    ) -> Tensor:  # fmt: skip
        ids = ids.contiguous()
        D = weight.size(1)
        y = weight.new_empty(*ids.shape, D)
        _embed[(-(-ids.numel() // ROWS),)](
            weight, ids, positions.contiguous(), seed, y, ids.numel(),
            SINUSOIDS=sinusoids, SCALE=scale, P_DROP=p_drop,
            D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(ids, seed)
        ctx.shape = weight.shape
        ctx.scale = scale
        ctx.p_drop = p_drop
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        ids, seed = ctx.saved_tensors
        dy = dy.contiguous()
        V, D = ctx.shape

        # All places of a token come together; chunks of them are summed.
        tokens, order = ids.flatten().sort(stable=True)
        chunks = -(-len(tokens) // CHUNK)
        width = max(16, min(128, triton.next_power_of_2(D)))
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
