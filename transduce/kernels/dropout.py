"""Dropout with random bits drawn sparingly, for training on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEVELS = 2**16


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale up the others.

    Torch draws 64 random bits for each element, which takes a seventh of a small model's step. 16
    are enough: p is rounded to 1 / 65,536, and what is kept is scaled by the rounded rate.
    """
    words = -(-x.numel() // 4)
    bits = torch.empty(words, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    dropped = round(p * LEVELS)
    kept = bits[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
    return x * (kept * (LEVELS / (LEVELS - dropped))).to(x.dtype)


class SparingDropout(nn.Dropout):
    """`nn.Dropout` by `dropout`, where x is on a CPU."""

    stands_for = nn.Dropout
    label = "dropout"

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        if not self.training or self.p == 0:
            return x
        return dropout(x, self.p) if x.device.type == "cpu" else super().forward(x)
