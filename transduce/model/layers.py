"""§3.1: the residual connection, the encoder layer and the decoder layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.dropout import dropout
from transduce.model.feed_forward import FeedForward
from transduce.model.kernels import Mask, residual_norm
from transduce.model.multi_head import KeyValues, MultiHeadAttention
from transduce.model.norm import build_norm
from transduce.model.positions import Rotation


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), or in pre-norm order x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.post = config.norm_order == "post"
        self.norm = build_norm(config)
        self.p_drop = config.p_drop

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer sees."""
        return x if self.post else self.norm(x)

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """The sum with the sub-layer's output."""
        p_drop = self.p_drop if self.training else 0.0
        return residual_norm(x, output, self.norm, p_drop) if self.post else x + dropout(output, p_drop)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Mask, rotation: Rotation | None) -> Tensor:
        """(B, S, d_model) -> (B, S, d_model)."""
        seen = self.self_attention_residual.before(x)
        q, keys_values = self.self_attention.queries_keys_values(seen, rotation)
        x = self.self_attention_residual.after(x, self.self_attention(q, keys_values, mask))
        seen = self.feed_forward_residual.before(x)
        return self.feed_forward_residual.after(x, self.feed_forward(seen))


@dataclass(frozen=True)
class LayerCache:
    """What one decoder layer keeps of the target so far, and of the source."""

    target: KeyValues
    memory: KeyValues

    def select(self, rows: Tensor) -> LayerCache:
        """The rows of the batch that a search goes on with."""
        return LayerCache(self.target.select(rows), self.memory.select(rows))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        cache: LayerCache | None,
        target_mask: Mask,
        memory_mask: Mask,
        rotation: Rotation | None,
    ) -> tuple[Tensor, LayerCache]:
        """(B, T, d_model), (B, S, d_model) -> (B, T, d_model) and the cache for what comes after T."""
        seen = self.self_attention_residual.before(x)
        q, target = self.self_attention.queries_keys_values(seen, rotation)
        target = target if cache is None else cache.target.then(target)
        x = self.self_attention_residual.after(x, self.self_attention(q, target, target_mask))

        seen = self.cross_attention_residual.before(x)
        source = self.cross_attention.keys_values(memory) if cache is None else cache.memory
        q = self.cross_attention.queries(seen)
        x = self.cross_attention_residual.after(x, self.cross_attention(q, source, memory_mask))

        seen = self.feed_forward_residual.before(x)
        x = self.feed_forward_residual.after(x, self.feed_forward(seen))
        return x, LayerCache(target, source)
