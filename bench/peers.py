"""The models of other libraries that the benchmarks compare with, in the shape of a recipe."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from transduce.config import ModelConfig
from transduce.translation import benchmark

MAX_POSITIONS = 512


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with the paper's embeddings and a shared output matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pad = config.pad
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad)
        self.positions = nn.Parameter(
            torch.zeros(MAX_POSITIONS, config.d_model), requires_grad=False
        )
        self.transformer = nn.Transformer(
            config.d_model,
            config.h,
            config.N,
            config.N,
            config.d_ff,
            config.p_drop,
            batch_first=True,
        )

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return logits: (B, S), (B, T) -> (B, T, V)."""
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.size(1), device=target.device
        )
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal.isinf(),
            tgt_is_causal=True,
            src_key_padding_mask=source == self.pad,
            tgt_key_padding_mask=target == self.pad,
            memory_key_padding_mask=source == self.pad,
        )
        return F.linear(hidden, self.embedding.weight)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return scaled embeddings plus positions: (B, T) -> (B, T, d_model)."""
        scale = self.embedding.embedding_dim**0.5
        return self.embedding(ids) * scale + self.positions[: ids.size(1)]


def build_marian(config: ModelConfig) -> Any:
    """Build Hugging Face's MarianMTModel for training in this shape, with random weights."""
    return benchmark.build_marian(
        config,
        dropout=config.p_drop,
        scale_embedding=True,
        max_position_embeddings=MAX_POSITIONS,
    )
