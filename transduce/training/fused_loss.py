"""The loss of `loss.smoothed_loss` together with the product before it, in Triton.

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

BLOCK = 2048  # logits of one row at a time


@triton.jit
def _loss_and_gradient(logits, labels, losses, likelihoods, EPS: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr):
    """One row: the loss, and then, while the row is still in the cache, the gradient in the place of the logits.

    Padding, id V - 1, is no class: it has no part in the sums, and its gradient is zero.
    """
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * V
    label = tl.load(labels + row)
    counts = label != V - 1
    true = tl.load(here + label).to(tl.float32)
    highest, total, everything = -1e30, 0.0, 0.0
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(here + columns, mask=columns < V - 1, other=-1e30).to(tl.float32)
        before = highest
        highest = tl.maximum(before, tl.max(values, 0))
        total = total * tl.exp(before - highest) + tl.sum(tl.exp(values - highest), 0)
        everything += tl.sum(tl.where(columns < V - 1, values, 0.0), 0)
    normaliser = highest + tl.log(total)
    share = EPS / (V - 2)
    others = everything - (V - 1) * true
    tl.store(losses + row, tl.where(counts, normaliser - true - share * others, 0.0))
    tl.store(likelihoods + row, tl.where(counts, normaliser - true, 0.0))
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(here + columns, mask=columns < V - 1, other=-1e30).to(tl.float32)
        gradient = tl.exp(values - normaliser) - tl.where(columns == label, 1 - EPS, share)
        gradient = tl.where(counts & (columns < V - 1), gradient, 0.0)
        tl.store(here + columns, gradient.to(logits.dtype.element_ty), mask=columns < V)


class ProjectedLoss(torch.autograd.Function):
    """Hidden states (B, T, d_model), the matrix (V, d_model) and labels (B, T) -> the two sums of `smoothed_loss`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
        V = weight.size(0)
        flat = x.flatten(0, -2)
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
        dx = (gradient @ weight) * scale
        d_weight = gradient.t() @ (flat * scale)
        return dx.view(ctx.shape), d_weight, None, None
