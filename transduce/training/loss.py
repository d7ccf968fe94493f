"""§5.4: cross-entropy with label smoothing, as a sum over tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transduce.kernels import cpu_loss
from transduce.kernels.accelerate import oddity
from transduce.model import Transformer


def smoothed_loss(logits: Tensor, labels: Tensor, eps_ls: float) -> tuple[Tensor, Tensor]:
    """Return (the smoothed loss, the negative log-likelihood), each summed over real tokens.

    The true class has probability 1 - eps_ls; eps_ls is spread evenly over the other classes, as
    in the authors' code. Padding, the last id, is not a class: it has no probability and gets no
    gradient, so its row of the shared matrix is not learned.
    logits (B, T, V), labels (B, T) -> two scalars, float32.
    """
    # In float32, and over real classes only.
    pad = logits.size(-1) - 1
    log_probs = logits[..., :pad].float().log_softmax(dim=-1)

    # The log-probability of the true class; any class will do where the label is padding.
    real = labels != pad
    classes = labels.long().masked_fill(~real, 0)
    true = log_probs.gather(-1, classes.unsqueeze(-1)).squeeze(-1)  # (B, T)

    # Cross-entropy with the smoothed distribution.
    others = log_probs.sum(dim=-1) - true
    smoothed = -(1 - eps_ls) * true - eps_ls / (pad - 1) * others

    # `where` and not a product, so that NaN or infinity at padding does not reach the sums.
    zero = torch.zeros((), device=logits.device)
    return torch.where(real, smoothed, zero).sum(), torch.where(real, -true, zero).sum()


def has_standard_output(model: nn.Module) -> bool:
    """Return whether `projected_loss` computes what the model's last layer and the loss would."""
    if oddity(model) or not isinstance(model, Transformer):
        return False
    if model.output is not None and oddity(model.output):
        return False
    return model.output_bias is None and model.config.vocab_size <= 65_536


def projected_loss(hidden: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
    """Return the two sums of `smoothed_loss`, (2,), fused with the product before the softmax.

    hidden (B, T, d_model) is the decoder's output, on a GPU or a CPU.
    """
    sums: Tensor
    if hidden.is_cuda:
        from transduce.kernels.loss import ProjectedLoss  # imports Triton

        sums = ProjectedLoss.apply(hidden, weight, labels, eps_ls)
    else:
        sums = cpu_loss.ProjectedLoss.apply(hidden, weight, labels, eps_ls)
    return sums
