"""§3.2.1: Equation 1 written out. It is the oracle that every kernel is tested against."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(QK^T / sqrt(d_k)), Equation 1 without V:  (B, h, Q, d_k), (B, h, K, d_k) -> (B, h, Q, K)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        # The lowest number and not -inf: a row of padding may have nothing to attend to, and must not become NaN.
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, p_drop: float = 0.0) -> Tensor:
    """Equation 1, the oracle of every kernel:  (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""
    return F.dropout(attention_weights(q, k, mask), p_drop) @ v
