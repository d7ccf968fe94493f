"""Equation 1 over rows of sentences on a GPU: a tile of queries meets only the keys of its own sentences."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from transduce.config import VARLEN_HEADS
from transduce.errors import InputError
from transduce.kernels.products import lying_alike
from transduce.kernels.tile_attention import (
    attend,
    attend_backward,
    attend_backward_kv,
    attend_backward_q,
    attend_long,
)
from transduce.kernels.tiles import TILE, Tiles, tile
from transduce.model.attention import Mask
from transduce.model.multi_head import MultiHeadAttention

PROGRAMS = 528  # that share the tiles of one row
MOST = 2**31 - 1  # numbers of one row, whose offsets have 32 bits


class TiledMask(NamedTuple):
    """A `Mask` as the kernels read it: places of queries and keys, and which meet in which tile."""

    places: tuple[Tensor, Tensor, Tensor, Tensor]  # segments and positions of queries, then of keys
    # Intervals of queries and of keys (B, tiles, 3), counts (B, 3).
    tiles: tuple[Tensor, Tensor, Tensor]
    causal: bool
    reach: int  # how far to either side, -1 for any distance


_TILED: WeakKeyDictionary[Mask, TiledMask] = WeakKeyDictionary()  # one mask serves all layers


def tiled_mask(mask: Mask) -> TiledMask:
    """Tile a mask between two sides whose segments ascend along each row; if causal, they are one."""
    if mask not in _TILED:
        queries, keys = mask.queries, mask.keys
        q, k = (
            (side.segments.contiguous(), side.positions.contiguous()) for side in (queries, keys)
        )
        ours, theirs = Tiles(*queries.prepared or [None] * 2), Tiles(*keys.prepared or [None] * 2)
        if ours.counts is None or theirs.counts is None:
            ours, theirs = tile(q[0], k[0])
        tiles = (ours.intervals, theirs.intervals, ours.counts)
        _TILED[mask] = TiledMask(
            (*q, *k), tiles, mask.causal, -1 if mask.r is None else mask.r // 2
        )
    return _TILED[mask]


def takes(attention: MultiHeadAttention, mask: Mask, length: int) -> bool:
    """Whether the kernels can attend from so many queries, and pay off."""
    fits = {attention.d_k, attention.d_v} <= VARLEN_HEADS and attention.p_drop == 0
    # After a cache, segments need not ascend along the row of keys.
    ascending = not mask.causal or mask.keys is mask.queries
    wanted = attention.kernel == "varlen" or (attention.kernel == "auto" and length >= 16)
    return fits and ascending and wanted


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Equation 1:  (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""
    return VarlenAttention.apply(q, k, v, tiled_mask(mask))


class VarlenAttention(torch.autograd.Function):
    """(B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: TiledMask) -> Tensor:
        q, k, v = map(_in_rows, (q, k, v))
        B, H, Q, _ = q.shape
        # Heads lie side by side in memory, as the product that follows wants them.
        o = q.new_empty(B, Q, H, v.size(3)).transpose(1, 2)
        lse = torch.empty(B, H, Q, device=q.device, dtype=torch.float32)
        _launch(attend, 1, mask, lse, q, k, v, o)
        _launch(attend_long, 1, mask, lse, q, k, v, o)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mask = mask
        return o

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, o, lse = ctx.saved_tensors
        d_output, (dq, dk, dv) = _in_rows(d_output), lying_alike(q, k, v)
        # Of how many tiles a sentence may be to fit on the chip at once.
        most = 2 if q.element_size() == 2 and max(q.size(3), v.size(3)) <= 64 else 1
        for parts in range(1, most + 1):
            _launch(attend_backward, parts, ctx.mask, lse, q, k, v, o, d_output, dq, dk, dv)
        for kernel in (attend_backward_q, attend_backward_kv):
            _launch(kernel, most, ctx.mask, lse, q, k, v, o, d_output, dq, dk, dv)
        return dq, dk, dv, None


def _launch(
    kernel: Any,
    parts: int,
    mask: TiledMask,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *others: Tensor,
) -> None:
    """Run a kernel: some programs for each row, which share its tiles and heads."""
    (B, H, Q, DK), K, DV = q.shape, k.size(2), v.size(3)
    P = mask.tiles[0].size(1)
    if max(tensor.size(2) * tensor.stride(2) for tensor in (q, k, v, *others)) > MOST:
        raise InputError(
            f"a row has {max(Q, K):,} tokens, too many for the varlen kernel; use smaller micro-batches"
        )
    strides = [stride for tensor in (q, k, v, *others) for stride in tensor.stride()[:3]]
    half, together = q.element_size() == 2, parts if kernel in (attend, attend_backward) else 1
    kernel[(min(PROGRAMS, P * H), B)](
        q, k, v, *others, lse, *mask.places, *mask.tiles, P, Q, K, *strides, SCALE=DK**-0.5, H=H, DK=DK, DV=DV,
        TILE=TILE * together, CAUSAL=mask.causal, REACH=mask.reach, PARTS=parts,
        # A tile has to fit into registers, and where tiles are many, four programs side by side.
        num_warps=4 * together if half else 8,
        maxnreg=128 if half and together == 1 and kernel in (attend, attend_long, attend_backward) else None,
        num_stages=1,  # loops are a few tiles long: there is nothing to prefetch
    )  # fmt: skip


def _in_rows(x: Tensor) -> Tensor:
    """Kernels read a row of (B, h, T, d) as one run; a gradient may be a single number, seen everywhere."""
    return x if x.stride(3) == 1 else x.contiguous()
