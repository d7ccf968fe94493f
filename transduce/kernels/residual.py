"""The residual connection with its dropout and norm, in one pass over memory each way, in Triton.

Which values are dropped is a hash of (seed, place), computed again in the backward pass and never stored.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.products import sum_rows

ROWS, WARPS = 2, 2  # rows of one program at a time, and warps that share them
# Of the backward pass; each sums the gradients of weight and bias over its share of rows.
PROGRAMS = 1056


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
def _add_norm(
    x, output, weight, bias, seed, total, y, means, scales, count,
    ADD: tl.constexpr, KEEP: tl.constexpr, STATISTICS: tl.constexpr, RMS: tl.constexpr,
    P_DROP: tl.constexpr, EPS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """total = x + Dropout(output) and y = norm(total); without ADD, y = norm(x)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    places = rows[:, None].to(tl.int64) * D + columns[None, :]
    sums = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(output + places, mask=inside, other=0.0).to(tl.float32)
        if P_DROP > 0:
            added = tl.where(kept(tl.load(seed), places, P_DROP), added * (1 / (1 - P_DROP)), 0.0)
        sums += added
        if KEEP:
            tl.store(total + places, sums.to(total.dtype.element_ty), mask=inside)

    # The norm, in float32.
    centred = sums
    if not RMS:
        mean = tl.sum(sums, 1) / D
        centred = tl.where(inside, sums - mean[:, None], 0.0)
        if STATISTICS:
            tl.store(means + rows, mean, mask=rows < count)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / D + EPS)
    if STATISTICS:
        tl.store(scales + rows, scale, mask=rows < count)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    normed = centred * scale[:, None] * gain[None, :]
    if not RMS:
        normed += tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
    tl.store(y + places, normed.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _add_norm_backward(
    dy, d_other, total, weight, seed, means, scales, dx, d_output, partial, count,
    OTHER: tl.constexpr, RMS: tl.constexpr, P_DROP: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """OTHER names what a second gradient is of: the result y again ("y"), or the sum ("total")."""
    columns = tl.arange(0, WIDTH)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    d_gain = tl.zeros((ROWS, WIDTH), tl.float32)  # summed over rows once, at the end
    d_shift = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = rows[:, None].to(tl.int64) * D + columns[None, :]
        scale = tl.load(scales + rows, mask=rows < count, other=0.0)
        sums = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(dy + places, mask=inside, other=0.0).to(tl.float32)
        if OTHER == "y":
            gradient += tl.load(d_other + places, mask=inside, other=0.0).to(tl.float32)
        if not RMS:
            sums -= tl.load(means + rows, mask=rows < count, other=0.0)[:, None]
            d_shift += gradient
        normed = tl.where(inside, sums * scale[:, None], 0.0)
        d_gain += gradient * normed
        inner = gradient * gain[None, :]
        d_sums = inner - normed * (tl.sum(inner * normed, 1) / D)[:, None]
        if not RMS:
            d_sums -= (tl.sum(inner, 1) / D)[:, None]
        d_sums *= scale[:, None]
        if OTHER == "total":
            d_sums += tl.load(d_other + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + places, d_sums.to(dx.dtype.element_ty), mask=inside)
        if P_DROP > 0:
            d_added = tl.where(
                kept(tl.load(seed), places, P_DROP), d_sums * (1 / (1 - P_DROP)), 0.0
            )
            tl.store(d_output + places, d_added.to(d_output.dtype.element_ty), mask=inside)
    share = partial + tl.program_id(0) * D + columns
    tl.store(share, tl.sum(d_gain, 0), mask=columns < D)
    if not RMS:
        tl.store(share + tl.num_programs(0) * D, tl.sum(d_shift, 0), mask=columns < D)


class AddNorm(torch.autograd.Function):
    """x and output (B, T, d_model), with a norm's weight and bias -> (total, y) or (y, y again).

    total = x + Dropout(output), or x itself without an output; y = norm(total), an RMSNorm where
    there is no bias. In pre-norm order both are wanted. In post-norm order only y is, but twice: by
    the next sub-layer and by the next sum. What is used twice has two gradients, and these are
    added where they are read, not in a pass of their own; so y comes as two results.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, output: Tensor | None, weight: Tensor, bias: Tensor | None,
        seed: Tensor, p_drop: float, eps: float, post: bool, learns: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        D = x.size(-1)
        count = x.numel() // D
        x = x.contiguous()
        output = None if output is None else output.contiguous()
        keep = output is not None and (learns or not post)
        total, y = torch.empty_like(x) if keep else x, torch.empty_like(x)
        statistics = torch.empty(2, count if learns else 0, device=x.device, dtype=torch.float32)
        width = triton.next_power_of_2(D)
        _add_norm[(-(-count // ROWS),)](
            x, x if output is None else output, weight, weight if bias is None else bias, seed, total, y,
            *statistics, count, ADD=output is not None, KEEP=keep, STATISTICS=learns, RMS=bias is None,
            P_DROP=p_drop, EPS=eps, D=D, WIDTH=width, ROWS=ROWS,
            num_warps=WARPS if learns else max(1, min(8, width // 512)),
        )  # fmt: skip
        ctx.save_for_backward(total, weight, seed, statistics)
        ctx.p_drop, ctx.post, ctx.adds, ctx.rms = p_drop, post, output is not None, bias is None
        ctx.set_materialize_grads(False)
        return (y, y.detach()) if post else (total if keep else x.detach(), y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, seed, statistics = ctx.saved_tensors
        first, second = (None if each is None else each.contiguous() for each in gradients)
        dy, other = (second, first) if not ctx.post or first is None else (first, second)
        if dy is None:
            dy = torch.zeros_like(total)
        D, count = total.size(-1), statistics.size(1)
        dx = torch.empty_like(total)
        d_output = torch.empty_like(total) if ctx.p_drop > 0 else dx
        programs = min(PROGRAMS, -(-count // ROWS))
        partial = torch.empty(
            1 if ctx.rms else 2, programs, D, device=dx.device, dtype=torch.float32
        )
        _add_norm_backward[(programs,)](
            dy, dy if other is None else other, total, weight, seed, *statistics, dx, d_output, partial, count,
            OTHER="" if other is None else "y" if ctx.post else "total", RMS=ctx.rms, P_DROP=ctx.p_drop,
            D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS, num_warps=WARPS,
        )  # fmt: skip
        d_weight, *d_bias = sum_rows(partial, weight.dtype)
        return dx, d_output if ctx.adds else None, d_weight, *(d_bias or [None]), *[None] * 5


def add_norm(
    x: Tensor, output: Tensor | None, norm: Any, p_drop: float, *, post: bool
) -> tuple[Tensor, Tensor]:
    """Launch `AddNorm` with the weights of an nn.LayerNorm or nn.RMSNorm, and a new seed."""
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    bias = getattr(norm, "bias", None)
    seed, learns = new_seed(x.device, p_drop), torch.is_grad_enabled()
    return AddNorm.apply(x, output, norm.weight, bias, seed, p_drop, eps, post, learns)


def new_seed(device: torch.device, p_drop: float) -> Tensor:
    """Draw a seed for `kept` from torch's generator; where nothing is dropped, it is never read."""
    if p_drop > 0:
        return torch.randint(2**62, (), device=device)
    return torch.empty((), device=device, dtype=torch.long)
