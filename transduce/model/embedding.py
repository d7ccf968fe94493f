"""§3.4: token ids to vectors times sqrt(d_model), and, with the same matrix, vectors to logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import InputError


class Embedding(nn.Module):
    """One matrix (V, d_model).

    Its last row, padding, is the zero vector: it starts every target and stays zero, because
    neither looking it up nor the loss gives it a gradient.
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.pad = vocab_size - 1
        self.scale = math.sqrt(d_model)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, d_model)."""
        try:
            return F.embedding(ids, self.weight, padding_idx=self.pad) * self.scale
        except IndexError:
            raise InputError(
                f"found token ids from {int(ids.min())} to {int(ids.max())}; "
                f"a vocabulary of {self.pad + 1} allows 0 to {self.pad}"
            ) from None

    def extra_repr(self) -> str:
        """Say the sizes."""
        return f"V={self.weight.size(0)}, d_model={self.weight.size(1)}"
