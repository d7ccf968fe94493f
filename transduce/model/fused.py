"""What stands between the products of a model, in one pass over memory each way, in Triton.

`ResidualNorm` is LayerNorm(x + Dropout(output)), §3.1 and §5.4. Which values are dropped is a hash of (seed, place),
computed again in the backward pass and never stored.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.model.products import sum_rows

ROWS, WARPS = 2, 2  # rows of one program at a time, and warps that share them
PROGRAMS = 1056  # of the backward pass, each of which sums the gradients of weight and bias over its share of rows


@triton.jit
def kept(seed, offsets, P_DROP: tl.constexpr):
    """Whether each place is kept: a 32-bit mix of its number and the seed, compared with the rate.

    A thousand million places a step are asked: integers and products, no division.
    """
    mixed = offsets.to(tl.uint32) ^ seed.to(tl.uint32)
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13) ^ (seed >> 32).to(tl.uint32)) * 0xC2B2AE35
    mixed = (mixed ^ (mixed >> 16)) * 0x9E3779B1
    mixed = mixed ^ (mixed >> 15)
    return mixed >= int(P_DROP * 4294967296)


@triton.jit
def _residual_norm(
    x, output, weight, bias, seed, total, y, means, scales, count,
    P_DROP: tl.constexpr, EPS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    places = rows[:, None].to(tl.int64) * D + columns[None, :]
    added = tl.load(output + places, mask=inside, other=0.0).to(tl.float32)
    if P_DROP > 0:
        added = tl.where(kept(tl.load(seed), places, P_DROP), added * (1 / (1 - P_DROP)), 0.0)
    sums = tl.load(x + places, mask=inside, other=0.0).to(tl.float32) + added
    tl.store(total + places, sums.to(total.dtype.element_ty), mask=inside)
    mean = tl.sum(sums, 1) / D
    centred = tl.where(inside, sums - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / D + EPS)
    tl.store(means + rows, mean, mask=rows < count)
    tl.store(scales + rows, scale, mask=rows < count)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)
    normed = centred * scale[:, None] * gain[None, :] + shift[None, :]
    tl.store(y + places, normed.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _residual_norm_backward(
    dy, d_again, total, weight, seed, means, scales, dx, d_output, partial, count,
    TWICE: tl.constexpr, P_DROP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, WIDTH)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    d_gain = tl.zeros((ROWS, WIDTH), tl.float32)  # summed over rows once, at the end
    d_shift = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = rows[:, None].to(tl.int64) * D + columns[None, :]
        mean = tl.load(means + rows, mask=rows < count, other=0.0)
        scale = tl.load(scales + rows, mask=rows < count, other=0.0)
        sums = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(dy + places, mask=inside, other=0.0).to(tl.float32)
        if TWICE:
            gradient += tl.load(d_again + places, mask=inside, other=0.0).to(tl.float32)
        normed = tl.where(inside, (sums - mean[:, None]) * scale[:, None], 0.0)
        d_gain += gradient * normed
        d_shift += gradient
        inner = gradient * gain[None, :]
        mean_1 = tl.sum(inner, 1) / D
        mean_2 = tl.sum(inner * normed, 1) / D
        d_sums = (inner - mean_1[:, None] - normed * mean_2[:, None]) * scale[:, None]
        tl.store(dx + places, d_sums.to(dx.dtype.element_ty), mask=inside)
        if P_DROP > 0:
            d_added = tl.where(kept(tl.load(seed), places, P_DROP), d_sums * (1 / (1 - P_DROP)), 0.0)
            tl.store(d_output + places, d_added.to(d_output.dtype.element_ty), mask=inside)
    mine = partial + tl.program_id(0) * D + columns
    tl.store(mine, tl.sum(d_gain, 0), mask=columns < D)
    tl.store(mine + tl.num_programs(0) * D, tl.sum(d_shift, 0), mask=columns < D)


class ResidualNorm(torch.autograd.Function):
    """(B, T, d_model) twice, with the norm's weight and bias -> (B, T, d_model), and the same again.

    Two uses of one result have two gradients: they are added where they are read, not in a pass of their own.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, output: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, p_drop: float, eps: float
    ) -> tuple[Tensor, Tensor]:
        D = x.size(-1)
        count = x.numel() // D
        x, output = x.contiguous(), output.contiguous()
        total, y = torch.empty_like(x), torch.empty_like(x)
        means = torch.empty(count, device=x.device, dtype=torch.float32)
        scales = torch.empty_like(means)
        _residual_norm[(-(-count // ROWS),)](
            x, output, weight, bias, seed, total, y, means, scales, count,
            P_DROP=p_drop, EPS=eps, D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(total, weight, seed, means, scales)
        ctx.p_drop = p_drop
        ctx.set_materialize_grads(False)
        return y, y.detach()  # no view: one that y keeps as an attribute would keep y for ever

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, seed, means, scales = ctx.saved_tensors
        D = total.size(-1)
        used = [gradient.contiguous() for gradient in gradients if gradient is not None]
        dx = torch.empty_like(total)
        d_output = torch.empty_like(total) if ctx.p_drop > 0 else dx
        programs = min(PROGRAMS, -(-means.numel() // ROWS))
        partial = torch.empty(2, programs, D, device=dx.device, dtype=torch.float32)
        _residual_norm_backward[(programs,)](
            used[0], used[-1], total, weight, seed, means, scales, dx, d_output, partial, means.numel(),
            TWICE=len(used) == 2, P_DROP=ctx.p_drop, D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS, num_warps=WARPS,
        )  # fmt: skip
        d_weight, d_bias = sum_rows(partial, weight.dtype)
        return dx, d_output, d_weight, d_bias, None, None, None
