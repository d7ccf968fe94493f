"""LayerNorm(x + Dropout(Sublayer(x))), §3.1 and §5.4, in one kernel each way, in Triton.

Torch takes three kernels for dropout, sum and norm, and more for their gradients. Each reads and
writes the whole tensor, and the time is bound by memory. Here forward and backward each read their
inputs once and write their results once.

The dropout mask is never stored: whether a value is kept is a hash of (seed, place), which the
backward pass computes again.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.products import sum_rows

ROWS = 2  # rows that one program handles at a time
WARPS = 2  # warps that share them
# Programs of the backward pass. Each sums the gradients of weight and bias over its share of rows.
PROGRAMS = 1056


@triton.jit
def kept(seed, offsets, P_DROP: tl.constexpr):
    """Whether dropout keeps each place: a 32-bit hash of place and seed, compared with P_DROP.

    A training step asks for some 10^9 places, so the hash uses only shifts and products.
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
    P_DROP: tl.constexpr, EPS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Compute total = x + Dropout(output) and y = norm(total); without ADD, y = norm(x).

    x, output, total and y are (count, D), weight and bias (D,), means and scales (count,). A
    program handles ROWS rows. WIDTH is the power of two from D on. With KEEP the total is stored,
    with STATISTICS what the backward pass needs of the norm.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    places = rows[:, None].to(tl.int64) * D + columns[None, :]

    # Load, drop and add.
    sums = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(output + places, mask=inside, other=0.0).to(tl.float32)
        if P_DROP > 0:
            added = tl.where(kept(tl.load(seed), places, P_DROP), added * (1 / (1 - P_DROP)), 0.0)
        sums += added
        if KEEP:
            tl.store(total + places, sums.to(total.dtype.element_ty), mask=inside)

    # Normalize, in float32.
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
    """Compute the gradients of x and output, and shares of those of weight and bias.

    dy, d_other, total, dx and d_output are (count, D); partial is (2, programs, D), or (1,
    programs, D) with RMS, which has no bias. OTHER says what d_other is the gradient of: of y,
    which was used twice ("y"), or of the total ("total"); without it ("") d_other is not read.

    Programs take turns with blocks of ROWS rows. With n = (total - mean) * scale and g = dy *
    weight, d_total = scale * (g - mean(g) - n * mean(g * n)), and an RMSNorm lacks both means of
    total and g.
    """
    columns = tl.arange(0, WIDTH)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    d_gain = tl.zeros((ROWS, WIDTH), tl.float32)  # summed over rows once, at the end
    d_shift = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < D)[None, :]
        places = rows[:, None].to(tl.int64) * D + columns[None, :]

        # Load; a second gradient of y is added here.
        scale = tl.load(scales + rows, mask=rows < count, other=0.0)
        sums = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(dy + places, mask=inside, other=0.0).to(tl.float32)
        if OTHER == "y":
            gradient += tl.load(d_other + places, mask=inside, other=0.0).to(tl.float32)

        # The gradients of bias (shift) and weight (gain).
        if not RMS:
            sums -= tl.load(means + rows, mask=rows < count, other=0.0)[:, None]
            d_shift += gradient
        normed = tl.where(inside, sums * scale[:, None], 0.0)
        d_gain += gradient * normed

        # The gradient of the total, which is that of x.
        inner = gradient * gain[None, :]
        d_sums = inner - normed * (tl.sum(inner * normed, 1) / D)[:, None]
        if not RMS:
            d_sums -= (tl.sum(inner, 1) / D)[:, None]
        d_sums *= scale[:, None]
        if OTHER == "total":
            d_sums += tl.load(d_other + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + places, d_sums.to(dx.dtype.element_ty), mask=inside)

        # The gradient of the output: with the same dropout as in the forward pass.
        if P_DROP > 0:
            keeps = kept(tl.load(seed), places, P_DROP)
            d_added = tl.where(keeps, d_sums * (1 / (1 - P_DROP)), 0.0)
            tl.store(d_output + places, d_added.to(d_output.dtype.element_ty), mask=inside)

    share = partial + tl.program_id(0) * D + columns
    tl.store(share, tl.sum(d_gain, 0), mask=columns < D)
    if not RMS:
        tl.store(share + tl.num_programs(0) * D, tl.sum(d_shift, 0), mask=columns < D)


class AddNorm(torch.autograd.Function):
    """x and output (B, T, d_model), with a norm's weight and bias -> (total, y) or (y, y again).

    total = x + Dropout(output), or x itself without an output. y = norm(total), an RMSNorm if there
    is no bias.

    In pre-norm order (post=False) total and y are both needed. In post-norm order only y is, but
    twice: by the next sub-layer and by the next sum. A tensor that is used twice has two gradients,
    which autograd would add in a kernel of its own. So y is returned as two results, and the
    backward kernel reads both gradients and adds them.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, output: Tensor | None, weight: Tensor, bias: Tensor | None,
        seed: Tensor, p_drop: float, eps: float, post: bool, learns: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        D = x.size(-1)
        count = x.numel() // D
        width = triton.next_power_of_2(D)
        adds = output is not None
        rms = bias is None
        x = x.contiguous()
        output = None if output is None else output.contiguous()

        # Make room for the results. Without an output the total is x.
        keep = adds and (learns or not post)
        total = torch.empty_like(x) if keep else x
        y = torch.empty_like(x)
        statistics = torch.empty(2, count if learns else 0, device=x.device, dtype=torch.float32)

        _add_norm[(-(-count // ROWS),)](
            x, x if output is None else output, weight, weight if bias is None else bias, seed,
            total, y, *statistics, count,
            ADD=adds, KEEP=keep, STATISTICS=learns, RMS=rms,
            P_DROP=p_drop, EPS=eps, D=D, WIDTH=width, ROWS=ROWS,
            num_warps=WARPS if learns else max(1, min(8, width // 512)),
        )  # fmt: skip
        ctx.save_for_backward(total, weight, seed, statistics)
        ctx.p_drop = p_drop
        ctx.post = post
        ctx.adds = adds
        ctx.rms = rms
        ctx.set_materialize_grads(False)
        if post:
            return y, y.detach()
        return total if keep else x.detach(), y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, seed, statistics = ctx.saved_tensors
        D = total.size(-1)
        count = statistics.size(1)

        # dy is the gradient of y; `other` is that of y again or of the total, where there is one.
        first, second = (None if grad is None else grad.contiguous() for grad in gradients)
        dy, other = (first, second) if ctx.post and first is not None else (second, first)
        if dy is None:
            dy = torch.zeros_like(total)
        kind_of_other = "y" if ctx.post else "total"

        # Make room for the results. Without dropout the gradients of x and output are equal.
        dx = torch.empty_like(total)
        d_output = torch.empty_like(total) if ctx.p_drop > 0 else dx
        programs = min(PROGRAMS, -(-count // ROWS))
        sums = 1 if ctx.rms else 2
        partial = torch.empty(sums, programs, D, device=dx.device, dtype=torch.float32)

        _add_norm_backward[(programs,)](
            dy, dy if other is None else other, total, weight, seed, *statistics,
            dx, d_output, partial, count,
            OTHER="" if other is None else kind_of_other, RMS=ctx.rms, P_DROP=ctx.p_drop,
            D=D, WIDTH=triton.next_power_of_2(D), ROWS=ROWS, num_warps=WARPS,
        )  # fmt: skip
        d_weight, *d_bias = sum_rows(partial, weight.dtype)
        return dx, d_output if ctx.adds else None, d_weight, *(d_bias or [None]), *[None] * 5


def add_norm(
    x: Tensor, output: Tensor | None, norm: Any, p_drop: float, *, post: bool
) -> tuple[Tensor, Tensor]:
    """Apply `AddNorm` with the weights of an nn.LayerNorm or nn.RMSNorm, and a new seed."""
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    bias = getattr(norm, "bias", None)
    seed = new_seed(x.device, p_drop)
    learns = torch.is_grad_enabled()
    return AddNorm.apply(x, output, norm.weight, bias, seed, p_drop, eps, post, learns)


def new_seed(device: torch.device, p_drop: float) -> Tensor:
    """Draw a seed for `kept` from torch's generator. Without dropout the seed is never read."""
    if p_drop > 0:
        return torch.randint(2**62, (), device=device)
    return torch.empty((), device=device, dtype=torch.long)
