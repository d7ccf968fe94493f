"""§3.1: the residual connection, the encoder layer and the decoder layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.attention import Mask
from transduce.model.feed_forward import FeedForward
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Rotation
from transduce.model.state import LayerCache


def build_norm(config: ModelConfig) -> nn.Module:
    """Make a LayerNorm as in the paper, or an RMSNorm:  (B, T, d_model) -> (B, T, d_model)."""
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.d_model, eps=config.norm_eps)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), or with pre-norm x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_order = config.norm_order
        self.norm = build_norm(config)
        self.dropout = nn.Dropout(config.p_drop)  # §5.4

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        if self.norm_order == "pre":
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))

    def extra_repr(self) -> str:
        """Show the order in `repr`."""
        return f"{self.norm_order}-norm"


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Mask, rotation: Rotation | None = None) -> Tensor:
        """(B, S, d_model) -> (B, S, d_model)."""
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, mask, rotation))
        return self.feed_forward_residual(x, self.feed_forward)


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
        target_mask: Mask,
        memory_mask: Mask,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, d_model), (B, S, d_model) -> (B, T, d_model).

        In a search x may have K rows for each row of the memory, the hypotheses of one source.
        """
        target_cache = cache.target if cache else None
        memory_cache = cache.memory if cache else None

        def attend_to_target(y: Tensor) -> Tensor:
            return self.self_attention(y, y, target_mask, rotation, target_cache)

        def attend_to_memory(y: Tensor) -> Tensor:
            # All hypotheses of a source attend at once: (B * K, T, d_model) -> (B, K * T, d_model).
            together = y.reshape(memory.size(0), -1, y.size(-1))
            output = self.cross_attention(together, memory, memory_mask, cache=memory_cache)
            return output.view(y.shape)

        x = self.self_attention_residual(x, attend_to_target)
        x = self.cross_attention_residual(x, attend_to_memory)
        return self.feed_forward_residual(x, self.feed_forward)


def is_layer_matrix(name: str, weight: Tensor) -> bool:
    """Return whether a parameter of a model is a matrix inside a layer; embeddings are not."""
    return weight.ndim == 2 and (".encoder." in f".{name}" or ".decoder." in f".{name}")
