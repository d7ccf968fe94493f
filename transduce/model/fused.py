"""What stands between the products of a layer, in one pass over memory each way, in Triton.

`ResidualNorm` is LayerNorm(x + Dropout(output)), §3.1 and §5.4: which values are dropped is a hash of (seed, place),
computed again in the backward pass and never stored. `LinearRelu` is max(0, xW + b), §3.3.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 4  # rows of one program at a time
PROGRAMS = 528  # of the backward pass, each of which sums the gradients of weight and bias over its share of rows


@triton.jit
def _kept(seed, offsets, P_DROP: tl.constexpr):
    """Whether each place is kept: a 32-bit mix of its number and the seed, compared with the rate."""
    mixed = offsets.to(tl.uint32) ^ seed.to(tl.uint32)
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13) ^ (seed >> 32).to(tl.uint32)) * 0xC2B2AE35
    mixed = (mixed ^ (mixed >> 16)) * 0x9E3779B1
    mixed = mixed ^ (mixed >> 15)
    return (mixed >> 8).to(tl.float32) * (1.0 / 16777216.0) >= P_DROP


@triton.jit
def _forward(
    x, output, weight, bias, seed, total, y, means, scales, count,
    P_DROP: tl.constexpr, EPS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    places = rows[:, None] * D + columns[None, :]
    added = tl.load(output + places, mask=inside, other=0.0).to(tl.float32)
    if P_DROP > 0:
        added = tl.where(_kept(tl.load(seed), places, P_DROP), added / (1 - P_DROP), 0.0)
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
def _backward(
    dy, total, weight, seed, means, scales, dx, d_output, d_weights, d_biases, count,
    P_DROP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, WIDTH)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    d_gain = tl.zeros((ROWS, WIDTH), tl.float32)  # summed over rows once, at the end
    d_shift = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = rows[:, None] * D + columns[None, :]
        mean = tl.load(means + rows, mask=rows < count, other=0.0)
        scale = tl.load(scales + rows, mask=rows < count, other=0.0)
        sums = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(dy + places, mask=inside, other=0.0).to(tl.float32)
        normed = tl.where(inside, (sums - mean[:, None]) * scale[:, None], 0.0)
        d_gain += gradient * normed
        d_shift += gradient
        inner = gradient * gain[None, :]
        mean_1 = tl.sum(inner, 1) / D
        mean_2 = tl.sum(inner * normed, 1) / D
        d_sums = (inner - mean_1[:, None] - normed * mean_2[:, None]) * scale[:, None]
        tl.store(dx + places, d_sums.to(dx.dtype.element_ty), mask=inside)
        if P_DROP > 0:
            d_added = tl.where(_kept(tl.load(seed), places, P_DROP), d_sums / (1 - P_DROP), 0.0)
            tl.store(d_output + places, d_added.to(d_output.dtype.element_ty), mask=inside)
    tl.store(d_weights + tl.program_id(0) * D + columns, tl.sum(d_gain, 0), mask=columns < D)
    tl.store(d_biases + tl.program_id(0) * D + columns, tl.sum(d_shift, 0), mask=columns < D)


class ResidualNorm(torch.autograd.Function):
    """(B, T, d_model) twice, with the norm's weight and bias -> (B, T, d_model)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, output: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, p_drop: float, eps: float
    ) -> Tensor:
        D = x.size(-1)
        count = x.numel() // D
        x, output = x.contiguous(), output.contiguous()
        total, y = torch.empty_like(x), torch.empty_like(x)
        means = torch.empty(count, device=x.device, dtype=torch.float32)
        scales = torch.empty_like(means)
        _forward[(-(-count // ROWS),)](
            x, output, weight, bias, seed, total, y, means, scales, count,
            P_DROP=p_drop, EPS=eps, D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS,
        )  # fmt: skip
        ctx.save_for_backward(total, weight, seed, means, scales)
        ctx.p_drop = p_drop
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        total, weight, seed, means, scales = ctx.saved_tensors
        D = total.size(-1)
        dy = dy.contiguous()
        dx = torch.empty_like(total)
        d_output = torch.empty_like(total) if ctx.p_drop > 0 else dx
        programs = min(PROGRAMS, -(-means.numel() // ROWS))
        d_weights = torch.empty(programs, D, device=dx.device, dtype=torch.float32)
        d_biases = torch.empty_like(d_weights)
        _backward[(programs,)](
            dy, total, weight, seed, means, scales, dx, d_output, d_weights, d_biases, means.numel(),
            P_DROP=ctx.p_drop, D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS,
        )  # fmt: skip
        d_weight, d_bias = d_weights.sum(0).to(weight.dtype), d_biases.sum(0).to(weight.dtype)
        return dx, d_output, d_weight, d_bias, None, None, None


@triton.jit
def _relu_backward(dy, y, dz, d_biases, count, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """The gradient before the ReLU, and its sums over this program's rows for the bias."""
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = rows[:, None] * D + columns[None, :]
        gradient = tl.load(dy + places, mask=inside, other=0.0)
        passed = tl.where(tl.load(y + places, mask=inside, other=0.0) > 0, gradient, 0.0)
        tl.store(dz + places, passed, mask=inside)
        sums += passed.to(tl.float32)
    tl.store(d_biases + tl.program_id(0) * D + columns, tl.sum(sums, 0), mask=columns < D)


class LinearRelu(torch.autograd.Function):
    """(B, T, d_model), W (d_ff, d_model), b (d_ff) -> (B, T, d_ff)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        # The product, the bias and the ReLU in one kernel of the vendor's library.
        y = torch._addmm_activation(bias, flat, weight.t())
        ctx.save_for_backward(flat, weight, y)
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, y = ctx.saved_tensors
        flat = dy.contiguous().view_as(y)
        dz = torch.empty_like(y)
        programs = min(PROGRAMS // 4, -(-y.size(0) // ROWS))
        d_biases = torch.empty(programs, y.size(1), device=y.device, dtype=torch.float32)
        width = min(512, triton.next_power_of_2(y.size(1)))
        _relu_backward[(programs, -(-y.size(1) // width))](
            flat, y, dz, d_biases, y.size(0), D=y.size(1), WIDTH=width, ROWS=ROWS
        )
        return (dz @ weight).view(*dy.shape[:-1], -1), dz.t() @ x, d_biases.sum(0).to(weight.dtype)
