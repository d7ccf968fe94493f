"""§5.4: dropout, with random bits drawn sparingly on the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale up the others.

    On the CPU torch draws 64 random bits for each element, a seventh of a small model's step. 16 are enough: p is
    rounded to 1 / 65,536, and what is kept is scaled by the rounded rate.
    """
    if p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    dropped = round(p * LEVELS)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
    return x * (kept * (LEVELS / (LEVELS - dropped))).to(x.dtype)


class Dropout(nn.Module):
    """In training alone."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same."""
        return dropout(x, self.p) if self.training else x
