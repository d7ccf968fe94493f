"""§3.4: embeddings, scaled by sqrt(d_model). The same matrix can also give the logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import InputError


class Embedding(nn.Module):
    """A matrix (V, d_model) with one vector per token.

    The last row belongs to padding, and also starts every target. It is not learned: neither the
    lookup nor the loss gives it a gradient. Where positions are added to it, it is zero, as in the
    authors' code. Elsewhere it is random: a zero vector has no queries, so the first word of a
    translation would come from all words of the source alike.
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
        """Show the sizes in `repr`."""
        return f"V={self.weight.size(0)}, d_model={self.weight.size(1)}"
