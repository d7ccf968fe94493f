"""§3.1: normalisation of d_model values, LayerNorm as in the paper or RMSNorm."""

from __future__ import annotations

from torch import nn

from transduce.config import ModelConfig


def build_norm(config: ModelConfig) -> nn.Module:
    """(B, T, d_model) -> (B, T, d_model)."""
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.d_model, eps=config.norm_eps)
