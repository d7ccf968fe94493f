"""Equation 1 (§3.2.1) over rows of many sentences on a GPU, by kernels over tiles.

A dense kernel computes the scores of all pairs in a row and masks most of them. Here a tile of
queries meets only the keys of its own sentences, so a row of ninety packed sentences costs no more
than ninety short rows, without their padding.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from transduce.config import LARGEST_WHOLE_HEAD, fits_tiles
from transduce.errors import InputError
from transduce.kernels.products import empty_gradients
from transduce.kernels.tile_attention import attend, attend_long
from transduce.kernels.tile_gradients import attend_backward, attend_backward_kv, attend_backward_q
from transduce.kernels.tiles import TILE, Tiles, tile
from transduce.model.attention import Mask
from transduce.model.multi_head import MultiHeadAttention

SLICE_BYTES = 256  # of a head that does not fit on the chip, what the kernels read at once
PROGRAMS = 528  # programs that share the tiles of one row
MOST = 2**31 - 1  # elements of one row, whose offsets have 32 bits


class TiledMask(NamedTuple):
    """A `Mask` as the kernels read it: places of queries and keys, and which meet in which tile."""

    # Segments and positions of the queries, (B, Q) each, then of the keys, (B, K) each.
    places: tuple[Tensor, Tensor, Tensor, Tensor]
    # Intervals of queries and of keys (B, tiles, 3), counts (B, 3).
    tiles: tuple[Tensor, Tensor, Tensor]
    causal: bool
    reach: int  # how far a query sees to either side; -1 for any distance


_TILED: WeakKeyDictionary[Mask, TiledMask] = WeakKeyDictionary()  # one mask serves all layers


def tiled_mask(mask: Mask) -> TiledMask:
    """Return the tiles of a mask between two sides whose segments ascend along each row.

    A causal mask must have the same tokens on both sides.
    """
    if mask not in _TILED:
        _TILED[mask] = _make_tiled_mask(mask)
    return _TILED[mask]


def _make_tiled_mask(mask: Mask) -> TiledMask:
    q_segments = mask.queries.segments.contiguous()
    q_positions = mask.queries.positions.contiguous()
    k_segments = mask.keys.segments.contiguous()
    k_positions = mask.keys.positions.contiguous()

    # The thread that prepares batches may have made the tiles of both sides already.
    if mask.queries.prepared and mask.keys.prepared:
        q_tiles = Tiles(*mask.queries.prepared)
        k_tiles = Tiles(*mask.keys.prepared)
    else:
        q_tiles, k_tiles = tile(q_segments, k_segments)

    return TiledMask(
        places=(q_segments, q_positions, k_segments, k_positions),
        tiles=(q_tiles.intervals, k_tiles.intervals, q_tiles.counts),
        causal=mask.causal,
        reach=-1 if mask.r is None else mask.r // 2,
    )


def takes(attention: MultiHeadAttention, mask: Mask, length: int) -> bool:
    """Whether the kernels support this attention and mask, and are faster for so many queries."""
    fits = fits_tiles(attention.d_k, attention.d_v) and attention.p_drop == 0
    # With a cache, segments need not ascend along the row of keys.
    ascending = not mask.causal or mask.keys is mask.queries
    wanted = attention.kernel == "varlen" or (attention.kernel == "auto" and length >= 16)
    return fits and ascending and wanted


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Apply Equation 1:  (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v)."""
    return VarlenAttention.apply(q, k, v, tiled_mask(mask))


class VarlenAttention(torch.autograd.Function):
    """Equation 1 with its gradients.

    (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v).
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: TiledMask) -> Tensor:
        q, k, v = map(_in_rows, (q, k, v))
        B, H, Q, _ = q.shape
        # Heads are side by side in memory, as the product that follows reads them.
        o = q.new_empty(B, Q, H, v.size(3)).transpose(1, 2)
        lse = torch.empty(B, H, Q, device=q.device, dtype=torch.float32)
        most = 0 if _is_wide(q, v) else 1  # tiles of the sentences that need no loop
        if most:
            _launch(attend, 1, mask, lse, q, k, v, o)
        _launch(attend_long, most, mask, lse, q, k, v, o)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mask = mask
        return o

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, o, lse = ctx.saved_tensors
        d_output = _in_rows(d_output)
        dq, dk, dv = empty_gradients(q, k, v)
        tensors = (q, k, v, o, d_output, dq, dk, dv)

        # Sentences of one tile or two fit on the chip at once; in float32, only those of one. Of
        # large heads, no sentence does.
        small = q.element_size() == 2 and max(q.size(3), v.size(3)) <= 64
        most = 0 if _is_wide(q, v) else 2 if small else 1
        for parts in range(1, most + 1):
            _launch(attend_backward, parts, ctx.mask, lse, *tensors)
        for kernel in (attend_backward_q, attend_backward_kv):
            _launch(kernel, most, ctx.mask, lse, *tensors)
        return dq, dk, dv, None


def _is_wide(q: Tensor, v: Tensor) -> bool:
    """Return whether heads are too large for the chip, so that kernels read them in slices."""
    return max(q.size(3), v.size(3)) > LARGEST_WHOLE_HEAD


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
    """Launch a kernel with some programs for each row, which share its tiles and heads."""
    B, H, Q, d_k = q.shape
    K = k.size(2)
    d_v = v.size(3)
    P = mask.tiles[0].size(1)
    if max(tensor.size(2) * tensor.stride(2) for tensor in (q, k, v, *others)) > MOST:
        raise InputError(
            f"a row has {max(Q, K):,} tokens, too many for the varlen kernel;"
            " use smaller micro-batches"
        )
    strides = [stride for tensor in (q, k, v, *others) for stride in tensor.stride()[:3]]

    # A tile has to fit into registers, and where there are many tiles, so have four programs at
    # once.
    half = q.element_size() == 2
    has_loop = kernel not in (attend, attend_backward)
    together = 1 if has_loop else parts
    one_tile = together == 1 and kernel in (attend, attend_long, attend_backward)
    slices = d_k * q.element_size() // SLICE_BYTES if _is_wide(q, v) else 1
    options = {"SLICES": slices} if has_loop else {}
    kernel[(min(PROGRAMS, P * H), B, slices)](
        q, k, v, *others, lse, *mask.places, *mask.tiles, P, Q, K, *strides,
        SCALE=d_k**-0.5, H=H, DK=d_k // slices, DV=d_v // slices, TILE=TILE * together,
        CAUSAL=mask.causal, REACH=mask.reach, PARTS=parts, **options,
        num_warps=4 * together if half and slices == 1 else 8,
        maxnreg=128 if half and one_tile and slices == 1 else None,
        num_stages=1,  # loops are a few tiles long: there is nothing to prefetch
    )  # fmt: skip


def _in_rows(x: Tensor) -> Tensor:
    """Return x (B, h, T, d) with the d elements of a head side by side, as the kernels read them.

    The gradient of a sum, for one, is a single number that is expanded.
    """
    return x if x.stride(3) == 1 else x.contiguous()
