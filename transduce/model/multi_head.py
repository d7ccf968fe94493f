"""§3.2.2: multi-head attention, and the keys and values that it can keep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.kernels import Mask, product
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
        self.p_drop = config.p_drop_attention
        bias = config.attention_bias
        self.w_q = nn.Linear(config.d_model, config.h * config.d_k, bias)
        self.w_k = nn.Linear(config.d_model, config.h * config.d_k, bias)
        self.w_v = nn.Linear(config.d_model, config.h * config.d_v, bias)
        self.w_o = nn.Linear(config.h * config.d_v, config.d_model, bias)

    def queries(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        """(B, Q, d_model) -> (B, h, Q, d_k)."""
        return rotate(self._together(x, self.w_q)[0], rotation)

    def keys_values(self, x: Tensor, rotation: Rotation | None = None) -> KeyValues:
        """What may be attended to, projected once:  (B, K, d_model) -> (B, h, K, d_k), (B, h, K, d_v)."""
        k, v = self._together(x, self.w_k, self.w_v)
        return KeyValues(rotate(k, rotation), v)

    def queries_keys_values(self, x: Tensor, rotation: Rotation | None = None) -> tuple[Tensor, KeyValues]:
        """Both, for attention of x to itself."""
        q, k, v = self._together(x, self.w_q, self.w_k, self.w_v)
        return rotate(q, rotation), KeyValues(rotate(k, rotation), v)

    def forward(self, q: Tensor, keys_values: KeyValues, mask: Mask) -> Tensor:
        """Attend and join the heads:  (B, h, Q, d_k) -> (B, Q, d_model)."""
        p_drop = self.p_drop if self.training else 0.0
        heads = mask.attend(q, keys_values.k, keys_values.v, p_drop)  # (B, h, Q, d_v)
        return product(heads.transpose(1, 2).flatten(2), self.w_o)[0]  # (B, Q, d_model)

    def _together(self, x: Tensor, *projections: nn.Linear) -> list[Tensor]:
        return [self._heads(part) for part in product(x, *projections)]

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.h, -1).transpose(1, 2)  # (B, T, h * d) -> (B, h, T, d)
