"""§3.2.2: multi-head attention, and the keys and values that it can keep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.kernels import Mask, attend
from transduce.model.positions import Rotation, rotate


@dataclass(frozen=True)
class KeyValues:
    """Projected keys and values of one attention: (B, h, K, d_k) and (B, h, K, d_v)."""

    k: Tensor
    v: Tensor

    def then(self, later: KeyValues) -> KeyValues:
        """These, followed by later ones."""
        return KeyValues(torch.cat([self.k, later.k], dim=2), torch.cat([self.v, later.v], dim=2))

    def select(self, rows: Tensor) -> KeyValues:
        """The rows of the batch that a search goes on with."""
        return KeyValues(self.k.index_select(0, rows), self.v.index_select(0, rows))


class MultiHeadAttention(nn.Module):
    """h attentions side by side, with free h, d_k and d_v."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.h = config.h
        self.kernel = config.kernel
        self.p_drop = config.p_drop_attention
        bias = config.attention_bias
        self.w_q = nn.Linear(config.d_model, config.h * config.d_k, bias)
        self.w_k = nn.Linear(config.d_model, config.h * config.d_k, bias)
        self.w_v = nn.Linear(config.d_model, config.h * config.d_v, bias)
        self.w_o = nn.Linear(config.h * config.d_v, config.d_model, bias)

    def keys_values(self, x: Tensor, rotation: Rotation | None = None) -> KeyValues:
        """What may be attended to, projected once:  (B, K, d_model) -> (B, h, K, d_k), (B, h, K, d_v)."""
        return KeyValues(rotate(self._heads(self.w_k(x)), rotation), self._heads(self.w_v(x)))

    def queries(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        """(B, Q, d_model) -> (B, h, Q, d_k)."""
        return rotate(self._heads(self.w_q(x)), rotation)

    def forward(self, x: Tensor, keys_values: KeyValues, mask: Mask, rotation: Rotation | None = None) -> Tensor:
        """Attend from x:  (B, Q, d_model) -> (B, Q, d_model)."""
        p_drop = self.p_drop if self.training else 0.0
        heads = attend(self.queries(x, rotation), keys_values.k, keys_values.v, mask, p_drop)  # (B, h, Q, d_v)
        return self.w_o(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # (B, Q, d_model)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.h, -1).transpose(1, 2)  # (B, T, h * d) -> (B, h, T, d)
