"""The label-smoothed cross-entropy (§5.4) together with the product before it, on a CPU.

It equals `training.loss.smoothed_loss` of the logits, and has the gradient that is derived in
`kernels.loss`: p(c) - s for each class c, except p(y) - (1 - eps) for the true class y, where s is
eps / (V - 2).

The logits of a whole step would take much memory, and would be read and written several times. So
tokens are processed in chunks: product, loss and gradients of one chunk before the next. Padding is
left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 512  # tokens of a chunk


class ProjectedLoss(torch.autograd.Function):
    """The two sums of `smoothed_loss`, (2,), from the decoder's output.

    hidden (B, T, d_model), weight (V, d_model), labels (B, T). Only the first sum has a gradient.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
        """Compute the sums, and the gradients for a first sum that counts once."""
        pad = weight.size(0) - 1
        share = eps_ls / (pad - 1)
        classes = weight[:pad]  # (C, d_model)
        real = (labels != pad).flatten().nonzero().squeeze(1)
        rows = hidden.flatten(0, 1)[real]  # (n, d_model)
        true = labels.flatten()[real].long()  # (n,)

        row_gradients = torch.empty_like(rows)
        # Summed over chunks, so never in bf16.
        sum_type = torch.promote_types(weight.dtype, torch.float32)
        weight_gradient = torch.zeros_like(weight, dtype=sum_type)
        sums = torch.zeros(2)
        for start in range(0, len(rows), ROWS):
            # The loss of a chunk.
            chunk = rows[start : start + ROWS]
            label = true[start : start + ROWS, None]
            log_probs = (chunk @ classes.T).float().log_softmax(dim=-1)  # (ROWS, C)
            true_log_probs = log_probs.gather(1, label)
            nll = -true_log_probs.sum()
            others = log_probs.sum() + nll
            sums += torch.stack([(1 - eps_ls) * nll - share * others, nll])

            # Its gradients; the probabilities take the place of their logarithms.
            gradient = log_probs.exp_().sub_(share)
            gradient.scatter_add_(1, label, torch.full_like(true_log_probs, share - (1 - eps_ls)))
            gradient = gradient.to(chunk.dtype)
            torch.matmul(gradient, classes, out=row_gradients[start : start + ROWS])
            weight_gradient[:pad] += gradient.T @ chunk

        hidden_gradient = torch.zeros(hidden.shape, dtype=hidden.dtype)
        hidden_gradient.flatten(0, 1)[real] = row_gradients
        ctx.save_for_backward(hidden_gradient, weight_gradient.to(weight.dtype))
        return sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale the gradients that `forward` has computed."""
        hidden_gradient, weight_gradient = ctx.saved_tensors
        factor = gradient[0]
        return hidden_gradient * factor, weight_gradient * factor, None, None
