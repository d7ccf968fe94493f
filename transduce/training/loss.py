"""§5.4: cross-entropy with label smoothing, as a sum over tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transduce.kernels.accelerate import oddity
from transduce.model import Transformer


def smoothed_loss(logits: Tensor, labels: Tensor, eps_ls: float) -> tuple[Tensor, Tensor]:
    """(the smoothed loss, the negative log-likelihood), each summed over the labels that are not padding.

    The true class has probability 1 - eps_ls; eps_ls is spread evenly over the other classes, as in the authors'
    code. Padding, the last id, is not a class: it has no probability and gets no gradient, so its row of the shared
    matrix stays the zero vector.
    logits (B, T, V), labels (B, T) -> two scalars, float32.
    """
    pad = logits.size(-1) - 1
    log_probs = logits[..., :pad].float().log_softmax(dim=-1)
    counts = labels != pad
    true = log_probs.gather(-1, labels.long().masked_fill(~counts, 0).unsqueeze(-1)).squeeze(-1)
    smoothed = -(1 - eps_ls) * true - eps_ls / (pad - 1) * (log_probs.sum(dim=-1) - true)
    zero = torch.zeros((), device=logits.device)
    return torch.where(counts, smoothed, zero).sum(), torch.where(counts, -true, zero).sum()


def ends_as_standard(model: nn.Module) -> bool:
    """Whether a model ends in the product that `projected_loss` computes, and nothing of the user's own."""
    if oddity(model) or not isinstance(model, Transformer):
        return False
    own_output = model.output is not None and oddity(model.output)
    return model.output_bias is None and not own_output and model.config.vocab_size <= 65_536


def projected_loss(hidden: Tensor, weight: Tensor, labels: Tensor, eps_ls: float) -> Tensor:
    """The two sums for the decoder's output (B, T, d_model), the product before the softmax included: (2,)."""
    from transduce.kernels.loss import ProjectedLoss  # and with it Triton

    sums: Tensor = ProjectedLoss.apply(hidden, weight, labels, eps_ls)
    return sums
