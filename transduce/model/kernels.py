"""Which implementation computes what on which device. The choice is made here and nowhere else.

Equation 1, each equal to `attention.attention` in value and gradient for every token, packed or padded:

written-out   the oracle itself: every score in memory
sdpa          torch's scaled_dot_product_attention with a boolean mask: the CPU, single steps, attention dropout
varlen        `varlen.VarlenAttention`, in Triton: on CUDA, tiles of queries that meet only keys of their sentences

Embeddings, products and the residual connection have fused forms on CUDA too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import VARLEN_HEADS, Kernel, ModelConfig
from transduce.model.attention import attention
from transduce.model.dropout import dropout
from transduce.model.embedding import Embedding
from transduce.model.positions import Positions
from transduce.model.tiles import Tiles
from transduce.model.tokens import Tokens


@dataclass(frozen=True)
class Places:
    """Which sentence each token is in and where it stands there, (B, T); and tiles, if they were made before."""

    segments: Tensor
    positions: Tensor
    tiles: Tiles | None = None


class Mask(Protocol):
    """Who may attend to whom, in the form that a kernel takes."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, p_drop: float = 0.0) -> Tensor:
        """Equation 1:  (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""


def choose(config: ModelConfig, queries: Tensor, *, ascending: bool = True) -> Kernel:
    """The kernel for queries (B, Q). The varlen kernel needs segments that ascend along the row of keys.

    Where they do not, after a cache, even a model that names that kernel has another.
    """
    if config.kernel != "auto" and (ascending or config.kernel != "varlen"):
        return config.kernel
    fits = {config.d_k, config.d_v} <= VARLEN_HEADS
    if queries.is_cuda and fits and ascending and queries.size(1) >= 16 and config.p_drop_attention == 0:
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

        # The next layer reads the result and the next residual connection reads it again: see ResidualNorm.
        x = getattr(x, "again", x)
        y, y.again = ResidualNorm.apply(x, output, norm.weight, norm.bias, _seed(x.device, p_drop), p_drop, norm.eps)
        return y  # type: ignore[no-any-return]
    return norm(x + dropout(output, p_drop))  # type: ignore[no-any-return]


def embed(tokens: Tokens, embedding: Embedding, positions: Positions, p_drop: float) -> Tensor:
    """Dropout(embedding + position), §3.4 and §3.5:  (B, T) -> (B, T, d_model)."""
    if tokens.ids.is_cuda and positions.kind == "sinusoidal":
        from transduce.model.fused_embedding import Embedded

        seed = _seed(tokens.ids.device, p_drop)
        fused: Tensor = Embedded.apply(embedding.weight, tokens.ids, tokens.positions, seed, embedding.scale, p_drop)
        return fused
    return dropout(positions(embedding(tokens.ids), tokens.positions), p_drop)


def _seed(device: torch.device, p_drop: float) -> Tensor:
    return torch.randint(2**62, (), device=device) if p_drop > 0 else torch.empty((), device=device, dtype=torch.long)


def relu_network(x: Tensor, w_1: nn.Linear, w_2: nn.Linear) -> Tensor:
    """max(0, xW_1 + b_1)W_2 + b_2, §3.3:  (B, T, d_model) -> (B, T, d_model)."""
    if x.is_cuda and _takes_own_product(w_1.weight):
        from transduce.model.products import ReluNetwork

        output: Tensor = ReluNetwork.apply(x, w_1.weight, w_1.bias, w_2.weight, w_2.bias)
        return output
    return product(F.relu(product(x, w_1)[0]), w_2)[0]


def _takes_own_product(weight: Tensor) -> bool:
    """Half precision, rows of a multiple of 16 bytes, and a chip with room for the tiles: Hopper's and larger ones."""
    chip: Any = torch.cuda.get_device_properties(weight.device)
    rows = weight.element_size() == 2 and all(size % 8 == 0 for size in weight.shape)
    return rows and chip.major >= 9 and chip.shared_memory_per_block_optin >= 200_000


def product(x: Tensor, *linears: nn.Linear) -> list[Tensor]:
    """What each layer makes of x:  (B, T, d_in) -> (B, T, d_out) each."""
    weights, bias = [linear.weight for linear in linears], linears[0].bias
    if x.is_cuda and (bias is None or len(weights) == 1):
        from transduce.model.products import Product

        return list(Product.apply(x, bias, *weights))
    return [linear(x) for linear in linears]
