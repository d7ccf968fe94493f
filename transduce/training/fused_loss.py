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
def _loss_and_gradient(logits, labels, losses, likelihoods, EPS: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr):
    """One row: the loss, and the gradient in the place of the logits. Padding, id V - 1, is no class."""
    row = tl.program_id(0).to(tl.int64)
    base = logits + row * V
    label = tl.load(labels + row)
    counts = label != V - 1
    highest = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    plain = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(base + columns, mask=columns < V - 1, other=-1e30).to(tl.float32)
        plain += tl.where(columns < V - 1, values, 0.0)
        new_highest = tl.maximum(highest, values)
        total = total * tl.exp(highest - new_highest) + tl.where(columns < V - 1, tl.exp(values - new_highest), 0.0)
        highest = new_highest
    top = tl.max(highest, 0)
    log_total = top + tl.log(tl.sum(total * tl.exp(highest - top), 0))
    true = tl.load(base + tl.where(counts, label, 0)).to(tl.float32)
    share = EPS / (V - 2)
    loss = log_total - (1 - EPS) * true - share * (tl.sum(plain, 0) - true)
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    tl.store(likelihoods + row, tl.where(counts, log_total - true, 0.0))
    tl.debug_barrier()  # the label's logit is read before anybody overwrites it
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(base + columns, mask=columns < V - 1, other=-1e30).to(tl.float32)
        gradient = tl.exp(values - log_total) - tl.where(columns == label, 1 - EPS, share)
        gradient = tl.where(counts & (columns < V - 1), gradient, 0.0)
        tl.store(base + columns, gradient.to(logits.dtype.element_ty), mask=columns < V)


class ProjectedLoss(torch.autograd.Function):
    """Hidden states (B, T, d_model), the matrix (V, d_model) and labels (B, T) -> the two sums of `smoothed_loss`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
        V = weight.size(0)
        flat = x.flatten(0, -2)
        logits = F.linear(flat, weight)
        losses = torch.empty(2, flat.size(0), device=x.device, dtype=torch.float32)
        _loss_and_gradient[(flat.size(0),)](
            logits, labels.flatten(), losses[0], losses[1], EPS=eps_ls, V=V, BLOCK=min(8192, triton.next_power_of_2(V)),
            num_warps=16,
        )
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
