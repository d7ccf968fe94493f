"""The loss of `training.loss.smoothed_loss` together with the product before it, in Triton.

Logits are written once, in the precision of the product, and overwritten by their gradient in the same kernel that
sums the loss: no float32 logits, and one pass where autograd takes four.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from transduce.kernels.tile_attention import LOG2_E

BLOCK = 4096  # logits of one row at a time


@triton.jit
def _loss_and_gradient(
    logits, labels, losses, likelihoods, EPS: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr
):
    """One row: the loss, and then, while the row is still in the cache, the gradient in the place of the logits.

    Padding, id V - 1, is no class: it has no part in the sums, and its gradient is zero.
    """
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * V
    label = tl.load(labels + row)
    counts = label != V - 1
    true = tl.load(here + label).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    whole: tl.constexpr = (V - 1) // BLOCK * BLOCK  # blocks without padding come first
    inside = whole + columns < V - 1
    last = tl.load(here + whole + columns, mask=inside, other=-1e30).to(tl.float32)
    highest = tl.max(last, 0)
    sums = tl.exp2((last - highest) * LOG2_E)  # each place's own, added up at the end
    everything = tl.where(inside, last, 0.0)
    for start in range(0, whole, BLOCK):
        values = tl.load(here + start + columns).to(tl.float32)
        before = highest
        highest = tl.maximum(before, tl.max(values, 0))
        sums = sums * tl.exp2((before - highest) * LOG2_E) + tl.exp2(
            values * LOG2_E - highest * LOG2_E
        )
        everything += values
    normalizer = highest + tl.log(tl.sum(sums, 0))
    share = EPS / (V - 2)
    others = tl.sum(everything, 0) - (V - 1) * true
    tl.store(losses + row, tl.where(counts, normalizer - true - share * others, 0.0))
    tl.store(likelihoods + row, tl.where(counts, normalizer - true, 0.0))
    one = tl.where(counts, 1.0, 0.0)
    for start in range(0, whole, BLOCK):
        values = tl.load(here + start + columns).to(tl.float32)
        gradient = tl.exp2(values * LOG2_E - normalizer * LOG2_E) * one - share * one
        tl.store(here + start + columns, gradient.to(logits.dtype.element_ty))
    gradient = tl.where(inside, tl.exp2((last - normalizer) * LOG2_E) * one - share * one, 0.0)
    tl.store(here + whole + columns, gradient.to(logits.dtype.element_ty), mask=whole + columns < V)
    tl.debug_barrier()  # then what is said of the label is the last word
    gradient = tl.exp2((true - normalizer) * LOG2_E) - (1 - EPS)
    tl.store(here + label, gradient.to(logits.dtype.element_ty), mask=counts)


@triton.jit
def _scale(x, scale, y, count, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(x + places, mask=places < count).to(tl.float32) * tl.load(scale)
    tl.store(y + places, scaled.to(y.dtype.element_ty), mask=places < count)


def _scaled(x: Tensor, scale: Tensor) -> Tensor:
    """x times a float32 number on the device. Torch reads two dtypes number by number, in four times the time."""
    y = torch.empty_like(x)
    _scale[(-(-x.numel() // BLOCK),)](x, scale, y, x.numel(), BLOCK=BLOCK)
    return y


class ProjectedLoss(torch.autograd.Function):
    """Hidden states (B, T, d_model), the matrix (V, d_model) and labels (B, T) -> the two sums of `smoothed_loss`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
        V = weight.size(0)
        flat = x.flatten(0, -2).contiguous()
        logits = F.linear(flat, weight)
        losses = torch.empty(2, flat.size(0), device=x.device, dtype=torch.float32)
        _loss_and_gradient[(flat.size(0),)](
            logits, labels.flatten(), losses[0], losses[1], EPS=eps_ls, V=V, BLOCK=BLOCK
        )
        ctx.save_for_backward(flat, weight, logits)
        ctx.shape = x.shape
        return losses.sum(1)

    @staticmethod
    def backward(ctx: Any, d_sums: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, gradient = ctx.saved_tensors
        scale = d_sums[0]  # the second sum is for watching: nothing learns from it
        dx = _scaled(gradient @ weight, scale)
        d_weight = gradient.t() @ _scaled(flat, scale)
        return dx.view(ctx.shape), d_weight, None, None
