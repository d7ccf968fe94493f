"""§3.2.1: scaled dot-product attention (Equation 1), and the masks that restrict it."""

from __future__ import annotations

import math
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.model.tokens import Tokens


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute softmax(QK^T / sqrt(d_k)), which is Equation 1 without V.

    (B, h, Q, d_k), (B, h, K, d_k) -> (B, h, Q, K). `mask` is boolean and broadcasts to
    (B, 1, Q, K); True means "may attend".
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        # The lowest number instead of -inf: a query with nothing to attend to would become NaN.
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1)


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, p_drop: float = 0.0
) -> Tensor:
    """Equation 1:  (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v).

    Torch computes it without storing all weights; tests compare it with `written_out_attention`.
    """
    return F.scaled_dot_product_attention(q, k, v, mask, p_drop)


def written_out_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, p_drop: float = 0.0
) -> Tensor:
    """Equation 1 as the paper writes it, with every weight in memory; shapes as in `attention`."""
    return F.dropout(attention_weights(q, k, mask), p_drop) @ v


class Mask:
    """Which key each query may attend to. It is data only: attention is computed elsewhere.

    Tokens attend to the tokens of their own sentence. With `causal` they do not attend to later
    tokens; with `r` (§4) they attend to a neighbourhood of r tokens.
    """

    def __init__(
        self,
        queries: Tokens,
        keys: Tokens,
        *,
        causal: bool = False,
        r: int | None = None,
        everything: bool = False,
    ) -> None:
        """Set `everything` if it is known that all queries may attend to all keys."""
        self.queries = queries
        self.keys = keys
        self.causal = causal
        self.r = r
        self.everything = everything

    @cached_property
    def allowed(self) -> Tensor | None:
        """The mask in the form that `attention` takes: (B, 1, Q, K), or None if all is allowed."""
        if self.everything:
            return None
        q_positions = self.queries.positions.unsqueeze(-1)  # (B, Q, 1)
        k_positions = self.keys.positions.unsqueeze(-2)  # (B, 1, K)
        allowed = self.queries.segments.unsqueeze(-1) == self.keys.segments.unsqueeze(-2)
        if self.causal:
            allowed = allowed & (k_positions <= q_positions)
        if self.r is not None:
            allowed = allowed & ((k_positions - q_positions).abs() <= self.r // 2)
        return allowed.unsqueeze(1)  # (B, 1, Q, K)
