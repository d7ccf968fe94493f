"""§3.2.2: multi-head attention, h attentions side by side."""

from __future__ import annotations

from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.attention import Mask, attention, attention_weights, written_out_attention
from transduce.model.positions import Rotation, rotate
from transduce.model.state import Cache


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, where head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.h = config.h
        self.d_k = config.d_k
        self.d_v = config.d_v
        self.kernel = config.kernel
        self.p_drop = config.p_drop_attention
        bias = config.attention_bias
        self.w_q = nn.Linear(config.d_model, config.h * config.d_k, bias)
        self.w_k = nn.Linear(config.d_model, config.h * config.d_k, bias)
        self.w_v = nn.Linear(config.d_model, config.h * config.d_v, bias)
        self.w_o = nn.Linear(config.h * config.d_v, config.d_model, bias)

    def forward(
        self,
        queries_from: Tensor,
        keys_from: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, Q, d_model), (B, K, d_model) -> (B, Q, d_model).

        A cache adds the keys and values of earlier calls, or has all of them already.
        """
        # Project the inputs into h heads.
        if cache is not None and cache.complete is not None:
            q = self.queries(queries_from, rotation)
            k, v = cache.complete
        else:
            q, k, v = self.queries_keys_values(queries_from, keys_from, rotation)
            if cache is not None:
                k, v = cache.update(k, v)

        # Attend in every head, then mix the heads by W^O.
        return self.join(self.attend(q, k, v, mask))

    def queries(self, queries_from: Tensor, rotation: Rotation | None) -> Tensor:
        """Project the queries:  (B, Q, d_model) -> (B, h, Q, d_k)."""
        return rotate(self.heads(self.w_q(queries_from)), rotation)

    def queries_keys_values(
        self, queries_from: Tensor, keys_from: Tensor, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project queries, keys and values.

        (B, Q, d_model), (B, K, d_model) -> (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v).
        """
        q = self.queries(queries_from, rotation)
        k = rotate(self.heads(self.w_k(keys_from)), rotation)
        v = self.heads(self.w_v(keys_from))
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Apply Equation 1 in every head.

        (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v).
        """
        function = written_out_attention if self.kernel == "written-out" else attention
        return function(q, k, v, mask.allowed, self.p_drop if self.training else 0.0)

    def weights(
        self, queries_from: Tensor, keys_from: Tensor, mask: Mask, rotation: Rotation | None = None
    ) -> Tensor:
        """Compute the attention map of every head:  -> (B, h, Q, K)."""
        q, k, _ = self.queries_keys_values(queries_from, keys_from, rotation)
        return attention_weights(q, k, mask.allowed)

    def heads(self, x: Tensor) -> Tensor:
        """Split vectors into heads:  (B, T, h * d) -> (B, h, T, d)."""
        return x.view(*x.shape[:2], self.h, -1).transpose(1, 2)

    def join(self, heads: Tensor) -> Tensor:
        """Join the heads:  (B, h, Q, d_v) -> (B, Q, d_model)."""
        return self.w_o(heads.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        """Show the sizes in `repr`."""
        return f"h={self.h}, d_k={self.d_k}, d_v={self.d_v}"
