"""§3.5: where a token stands, as sinusoids, a learned table, a rotation of queries and keys, or nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig

Rotation = tuple[Tensor, Tensor]  # cosines and sines, each (B, 1, T, d_k / 2)


def _angles(positions: Tensor, dimensions: int) -> Tensor:
    """pos / 10000^(2i / dimensions):  (B, T) -> (B, T, dimensions / 2)."""
    exponents = torch.arange(0, dimensions, 2, device=positions.device, dtype=torch.float32) / dimensions
    return positions.unsqueeze(-1).float() * 10_000.0**-exponents


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same):  (B, T) -> (B, T, d_model)."""
    angles = _angles(positions, d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def rotate(heads: Tensor, rotation: Rotation | None) -> Tensor:
    """Turn dimension pairs (i, i + d/2) by the angle of the position (Su et al., 2021); nothing without a rotation."""
    if rotation is None:
        return heads
    cosines, sines = (table.to(heads.dtype) for table in rotation)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


class Positions(nn.Module):
    """Adds positions to embeddings, where the model has positions to add."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind = config.positions
        self.d_k = config.d_k
        learned = config.positions == "learned"
        self.table = nn.Parameter(torch.empty(config.max_positions, config.d_model)) if learned else None

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, T, d_model), (B, T) -> (B, T, d_model)."""
        if self.kind == "sinusoidal":
            return x + sinusoids(positions, x.size(-1)).to(x.dtype)
        if self.table is not None:
            return x + F.embedding(positions, self.table)
        return x

    def rotation(self, positions: Tensor) -> Rotation | None:
        """What turns queries and keys of self-attention at these positions."""
        if self.kind != "rotary":
            return None
        angles = _angles(positions, self.d_k).unsqueeze(1)
        return angles.cos(), angles.sin()
