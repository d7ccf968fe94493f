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


@triton.jit
def _loss_and_gradient(logits, labels, losses, likelihoods, EPS: tl.constexpr, V: tl.constexpr, WIDTH: tl.constexpr):
    """One row, held in registers: the loss, and the gradient in the place of the logits.

    Padding, id V - 1, is no class: it has no part in the sums, and its gradient is zero.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    is_class = columns < V - 1
    values = tl.load(logits + row * V + columns, mask=is_class, other=-1e30).to(tl.float32)
    label = tl.load(labels + row)
    counts = label != V - 1
    highest = tl.max(values, 0)
    powers = tl.exp(values - highest)
    total = tl.sum(powers, 0)
    true = tl.sum(tl.where(columns == label, values, 0.0), 0)
    likelihood = highest + tl.log(total) - true
    share = EPS / (V - 2)
    others = tl.sum(tl.where(is_class, values - true, 0.0), 0)
    tl.store(losses + row, tl.where(counts, likelihood - share * others, 0.0))
    tl.store(likelihoods + row, tl.where(counts, likelihood, 0.0))
    gradient = powers / total - tl.where(columns == label, 1 - EPS, share)
    gradient = tl.where(counts & is_class, gradient, 0.0)
    tl.store(logits + row * V + columns, gradient.to(logits.dtype.element_ty), mask=columns < V)


class ProjectedLoss(torch.autograd.Function):
    """Hidden states (B, T, d_model), the matrix (V, d_model) and labels (B, T) -> the two sums of `smoothed_loss`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
        V = weight.size(0)
        flat = x.flatten(0, -2)
        logits = F.linear(flat, weight)
        losses = torch.empty(2, flat.size(0), device=x.device, dtype=torch.float32)
        width = triton.next_power_of_2(V)
        _loss_and_gradient[(flat.size(0),)](
            logits, labels.flatten(), losses[0], losses[1], EPS=eps_ls, V=V, WIDTH=width,
            num_warps=min(max(width // 2048, 4), 32),
        )  # fmt: skip
        ctx.save_for_backward(flat, weight, logits)
        ctx.shape = x.shape
        return losses.sum(1)

    @staticmethod
    def backward(ctx: Any, d_sums: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, gradient = ctx.saved_tensors
        scale = d_sums[0].to(flat.dtype)  # the second sum is for watching: nothing learns from it
        dx = (gradient @ weight) * scale
        d_weight = gradient.t() @ (flat * scale)
        return dx.view(ctx.shape), d_weight, None, None
