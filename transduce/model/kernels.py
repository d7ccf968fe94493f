"""Which implementation computes Equation 1 on which device. The choice is made here, in `choose`, and nowhere else.

Each is equal to `attention.attention`, the equation written out, in value and gradient, packed or padded:

written-out   the oracle itself: every score in memory
sdpa          torch's scaled_dot_product_attention with a boolean mask: the CPU, and short or odd shapes on CUDA
flex          FlexAttention over a block mask, compiled: rows of packed sentences on CUDA touch only blocks they meet in
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from transduce.config import Kernel, ModelConfig
from transduce.model.attention import attention

BLOCK = 128  # queries and keys of one FlexAttention block


@dataclass(frozen=True)
class Places:
    """Which sentence each token is in and where it stands there, each (B, T)."""

    segments: Tensor
    positions: Tensor


@dataclass(frozen=True)
class Mask:
    """Who may attend to whom, in the form that the chosen kernel takes."""

    kernel: Kernel
    allowed: Tensor | BlockMask  # (B, 1, Q, K), True = may attend; or blocks of it


def choose(config: ModelConfig, queries: Tensor, keys: Tensor) -> Kernel:
    """The kernel for queries (B, Q) on keys (B, K)."""
    if config.kernel != "auto":
        return config.kernel
    powers_of_two = all(size >= 16 and size & (size - 1) == 0 for size in (config.d_k, config.d_v))
    long = queries.size(1) >= BLOCK and keys.size(1) >= BLOCK
    if queries.is_cuda and powers_of_two and long and config.p_drop_attention == 0:
        return "flex"
    return "sdpa"


def build_mask(kernel: Kernel, queries: Places, keys: Places, *, causal: bool, r: int | None = None) -> Mask:
    """Attention is allowed inside a sentence; if causal, to keys that are not later; with r (§4), to neighbours."""

    def allowed(q_segment: Tensor, k_segment: Tensor, q_position: Tensor, k_position: Tensor) -> Tensor:
        inside = q_segment == k_segment
        if causal:
            inside = inside & (k_position <= q_position)
        if r is not None:
            inside = inside & ((k_position - q_position).abs() <= r // 2)
        return inside

    if kernel != "flex":
        q_places = (queries.segments.unsqueeze(-1), queries.positions.unsqueeze(-1))  # (B, Q, 1)
        k_places = (keys.segments.unsqueeze(-2), keys.positions.unsqueeze(-2))  # (B, 1, K)
        return Mask(kernel, allowed(q_places[0], k_places[0], q_places[1], k_places[1]).unsqueeze(1))

    def element(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return allowed(queries.segments[b, q], keys.segments[b, k], queries.positions[b, q], keys.positions[b, k])

    return Mask(kernel, _block_mask(queries.segments, keys.segments, element, causal and queries is keys))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, p_drop: float = 0.0) -> Tensor:
    """Equation 1 by the kernel of the mask:  (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""
    if isinstance(mask.allowed, BlockMask):
        flex = _compiled_flex() if q.is_cuda else flex_attention
        output: Tensor = flex(q, k, v, block_mask=mask.allowed)
        return output
    if mask.kernel == "written-out":
        return attention(q, k, v, mask.allowed, p_drop)
    return F.scaled_dot_product_attention(q, k, v, mask.allowed, p_drop)


@cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention)


def _block_mask(q_segments: Tensor, k_segments: Tensor, element: Any, lower_triangle: bool) -> BlockMask:
    """Blocks that meet, from the first and last segment of each: segments ascend, so ranges that overlap meet.

    This costs a few hundred comparisons, where evaluating `element` for every pair of tokens costs 600 million.
    """
    q_first, q_last = _block_ranges(q_segments)
    k_first, k_last = _block_ranges(k_segments)
    meet = (q_first[:, :, None] <= k_last[:, None, :]) & (
        k_first[:, None, :] <= q_last[:, :, None]
    )  # (B, Q/128, K/128)
    if lower_triangle:
        meet = meet & torch.ones_like(meet[0], dtype=torch.bool).tril()
    count = meet.sum(-1, dtype=torch.int32).unsqueeze(1)  # (B, 1, Q/128)
    order = meet.int().argsort(dim=-1, descending=True, stable=True).int().unsqueeze(1)  # blocks that meet come first
    shape = (q_segments.size(1), k_segments.size(1))
    return BlockMask.from_kv_blocks(count, order, BLOCK_SIZE=BLOCK, mask_mod=element, seq_lengths=shape)


def _block_ranges(segments: Tensor) -> tuple[Tensor, Tensor]:
    """The first and last segment of each block:  (B, T) -> two of (B, ceil(T / 128))."""
    missing = -segments.size(1) % BLOCK
    padded = F.pad(segments, (0, missing), value=torch.iinfo(segments.dtype).max)
    blocks = padded.view(padded.size(0), -1, BLOCK)
    return blocks[..., 0], blocks.amax(-1)
