"""Which implementation computes what on which device. The choice is made here and nowhere else.

Equation 1, each equal to `attention.attention` in value and gradient, packed or padded:

written-out   the oracle itself: every score in memory
sdpa          torch's scaled_dot_product_attention with a boolean mask: the CPU, single steps, attention dropout
varlen        `varlen.VarlenAttention`, in Triton: on CUDA, tiles of queries that meet only keys of their sentences

The residual connection and the feed-forward network's first product have fused forms on CUDA too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import Kernel, ModelConfig
from transduce.model.attention import attention
from transduce.model.dropout import dropout


@dataclass(frozen=True)
class Places:
    """Which sentence each token is in and where it stands there, each (B, T)."""

    segments: Tensor
    positions: Tensor


class Mask(Protocol):
    """Who may attend to whom, in the form that a kernel takes."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, p_drop: float = 0.0) -> Tensor:
        """Equation 1:  (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""


def choose(config: ModelConfig, queries: Tensor, *, ascending: bool = True) -> Kernel:
    """The kernel for queries (B, Q). The varlen kernel needs segments that ascend along the row of keys."""
    if config.kernel != "auto":
        return config.kernel
    powers_of_two = all(16 <= size <= 128 and size & (size - 1) == 0 for size in (config.d_k, config.d_v))
    if queries.is_cuda and powers_of_two and ascending and queries.size(1) >= 16 and config.p_drop_attention == 0:
        return "varlen"
    return "sdpa"


def build_mask(kernel: Kernel, queries: Places, keys: Places, *, causal: bool, r: int | None = None) -> Mask:
    """Attention is allowed inside a sentence; if causal, to keys that are not later; with r (§4), to neighbours."""
    if kernel == "varlen":
        from transduce.model.varlen import VarlenMask

        return VarlenMask.build(queries, keys, causal=causal, reach=-1 if r is None else r // 2)
    q_positions, k_positions = queries.positions.unsqueeze(-1), keys.positions.unsqueeze(-2)
    allowed = queries.segments.unsqueeze(-1) == keys.segments.unsqueeze(-2)  # (B, Q, K)
    if causal:
        allowed = allowed & (k_positions <= q_positions)
    if r is not None:
        allowed = allowed & ((k_positions - q_positions).abs() <= r // 2)
    return DenseMask(allowed.unsqueeze(1), written_out=kernel == "written-out")


@dataclass(frozen=True)
class DenseMask:
    """A boolean for every pair of query and key, (B, 1, Q, K), True = may attend."""

    allowed: Tensor
    written_out: bool = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, p_drop: float = 0.0) -> Tensor:
        """By the oracle or by torch."""
        function = attention if self.written_out else F.scaled_dot_product_attention
        return function(q, k, v, self.allowed, p_drop)


def residual_norm(x: Tensor, output: Tensor, norm: nn.Module, p_drop: float) -> Tensor:
    """norm(x + Dropout(output)):  (B, T, d_model) twice -> (B, T, d_model)."""
    if x.is_cuda and isinstance(norm, nn.LayerNorm):
        from transduce.model.fused import ResidualNorm

        seed = torch.randint(2**62, (), device=x.device) if p_drop > 0 else x.new_zeros((), dtype=torch.long)
        fused: Tensor = ResidualNorm.apply(x, output, norm.weight, norm.bias, seed, p_drop, norm.eps)
        return fused
    return norm(x + dropout(output, p_drop))  # type: ignore[no-any-return]


def linear_relu(x: Tensor, linear: nn.Linear) -> Tensor:
    """max(0, xW + b), the first half of §3.3:  (B, T, d_model) -> (B, T, d_ff)."""
    if x.is_cuda and x.dtype == torch.bfloat16:
        from transduce.model.fused import LinearRelu

        fused: Tensor = LinearRelu.apply(x, linear.weight, linear.bias)
        return fused
    return F.relu(linear(x))
