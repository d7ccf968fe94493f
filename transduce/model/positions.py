"""§3.5: positional encodings: sinusoids, a learned table, rotary, or none."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.errors import InputError

Rotation = tuple[Tensor, Tensor]  # cosines and sines, each (B, 1, T, d_k / 2)


def _angles(positions: Tensor, dimensions: int) -> Tensor:
    """Compute pos / 10000^(2i / dimensions):  (B, T) -> (B, T, dimensions / 2)."""
    steps = torch.arange(0, dimensions, 2, device=positions.device, dtype=torch.float32)
    return positions.unsqueeze(-1).float() * 10_000.0 ** -(steps / dimensions)


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """Compute PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(the same).

    (B, T) -> (B, T, d_model).
    """
    angles = _angles(positions, d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def rotate(heads: Tensor, rotation: Rotation | None) -> Tensor:
    """Rotate dimension pairs (i, i + d/2) by the angle of the position (Su et al., 2021).

    (B, h, T, d) -> (B, h, T, d). Without a rotation the heads are returned unchanged.
    """
    if rotation is None:
        return heads
    cosines, sines = (table.to(heads.dtype) for table in rotation)
    first, second = heads.chunk(2, dim=-1)
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    return torch.cat(turned, dim=-1)


class Positions(nn.Module):
    """Adds positions to embeddings, or rotates queries and keys by them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind = config.positions
        self.d_k = config.d_k
        learned = config.positions == "learned"
        size = (config.max_positions, config.d_model)
        self.table = nn.Parameter(torch.empty(size)) if learned else None

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, T, d_model), (B, T) -> (B, T, d_model)."""
        if self.kind == "sinusoidal":
            return x + sinusoids(positions, x.size(-1)).to(x.dtype)
        if self.table is None:
            return x
        try:
            return x + F.embedding(positions, self.table)
        except IndexError:
            self.check_length(int(positions.max()) + 1)
            raise

    def rotation(self, positions: Tensor) -> Rotation | None:
        """Return the rotation of self-attention's queries and keys at these positions (B, T)."""
        if self.kind != "rotary":
            return None
        angles = _angles(positions, self.d_k).unsqueeze(1)
        return angles.cos(), angles.sin()

    def check_length(self, longest: int) -> None:
        """Refuse a sequence that is longer than the learned table."""
        if self.table is not None and longest > self.table.size(0):
            raise InputError(
                f"found a sequence of {longest} tokens; "
                f"learned positions end at max_positions = {self.table.size(0)}"
            )

    def extra_repr(self) -> str:
        """Show the kind in `repr`."""
        return self.kind
