"""Tiles of attention: which sentences of a packed row are computed together.

A tile has TILE places for queries and TILE for keys. Sentences that follow one another form a group
as long as they fit on both sides; a sentence that does not fit alone is a group of several tiles,
its parts. `tile_attention` then computes each group by itself.

All of it is tensor operations with results of a fixed shape: nothing waits for a GPU, and CUDA
graphs can be captured. In training, the thread that prepares batches makes the tiles ahead of time
(`tiled`); elsewhere `varlen` makes them when they are needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.model.tokens import Tokens

TILE = 64  # places of one side of a tile


class Tiles(NamedTuple):
    """The tiles of one side. Tile n of the other side holds the same sentences as tile n here."""

    # (B, tiles, 3): first place of the group's sentences, the place after their last, and the part.
    intervals: Tensor
    # (B, 3): number of tiles in groups of more than two, of more than one, and of any number of
    # tiles. Tiles of larger groups come first.
    counts: Tensor


def tile(queries: Tensor, keys: Tensor) -> tuple[Tiles, Tiles]:
    """Make the tiles of two sides from their segments, (B, Q) and (B, K).

    Segments must ascend along each row.
    Part p of a group holds its TILE queries and its TILE keys from place p * TILE on.
    """
    B, Q = queries.shape
    K = keys.size(1)

    # Two groups that follow one another have more than TILE tokens on one of the sides together.
    groups = -(-(Q + K) // (TILE // 2)) + 1

    # Find where the groups begin, (B, groups + 1) for each side.
    q_begin, k_begin = _sentences(queries, keys)
    first = _first_of_groups(q_begin, k_begin)
    number = (first.cumsum(1) - 1).where(first, groups)  # other sentences go into one slot more
    number = number.clamp(max=groups)
    q_low = q_begin.new_full((B, groups + 1), Q).scatter(1, number, q_begin.where(first, Q))
    k_low = k_begin.new_full((B, groups + 1), K).scatter(1, number, k_begin.where(first, K))
    intervals = [q_low[:, :-1], q_low[:, 1:], k_low[:, :-1], k_low[:, 1:]]

    # Count the parts of each group. The largest groups come first.
    q_size = intervals[1] - intervals[0]
    k_size = intervals[3] - intervals[2]
    parts = (torch.maximum(q_size, k_size) + TILE - 1) // TILE
    parts, longest_first = parts.sort(dim=1, descending=True)
    ends = parts.cumsum(1)
    larger = [parts.masked_fill(parts <= most, 0).sum(1) for most in (2, 1, 0)]
    counts = torch.stack(larger, dim=1).int()

    # For each tile: its group, and which part of the group it is.
    tiles = groups + -(-Q // TILE) + -(-K // TILE)
    numbers = torch.arange(tiles, device=queries.device).expand(B, -1)
    group = torch.searchsorted(ends, numbers.contiguous(), right=True).clamp(max=groups - 1)
    part = numbers - (ends - parts).gather(1, group)
    columns = [interval.gather(1, longest_first).gather(1, group) for interval in intervals]
    q_intervals = torch.stack([*columns[:2], part], dim=-1).int()
    k_intervals = torch.stack([*columns[2:], part], dim=-1).int()
    return Tiles(q_intervals, counts), Tiles(k_intervals, counts)


def tiled(source: Tokens, target: Tokens) -> tuple[Tokens, Tokens]:
    """Return both sides with tiles for every attention inside and between them."""
    target_tiles, source_tiles = tile(target.segments, source.segments)
    return replace(source, prepared=source_tiles), replace(target, prepared=target_tiles)


def whole_rows(rows: Tensor) -> Tiles:
    """Make the tiles of rows (B, T) of one sentence and its padding: a group is a whole row."""
    B, T = rows.shape
    part = torch.arange(-(-T // TILE), device=rows.device, dtype=torch.int32)
    intervals = torch.stack([torch.zeros_like(part), torch.full_like(part, T), part], dim=1)
    counts = part.new_zeros(B, 3)
    counts[:, max(0, 3 - len(part)) :] = len(part)
    return Tiles(intervals.expand(B, -1, -1).contiguous(), counts)


def _sentences(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Find where each sentence of the queries begins, and where its keys begin:  (B, n + 1), both.

    After the last sentence come Q and K.
    """
    B, Q = queries.shape
    K = keys.size(1)
    begins = F.pad(queries[:, 1:] != queries[:, :-1], (1, 0), value=True)

    # The number of sentences would have to come from the GPU, and Python would wait for it.
    most = Q if queries.is_cuda else int(begins.sum(1).max())

    places = torch.arange(Q, device=queries.device).expand_as(queries)
    number = (begins.cumsum(1) - 1).where(begins, most)
    q_begin = places.new_full((B, most + 1), Q).scatter(1, number, places.where(begins, Q))
    segments = queries.gather(1, q_begin.clamp(max=Q - 1))
    k_begin = torch.searchsorted(keys, segments).where(q_begin < Q, K)
    k_begin[:, 0] = 0  # keys before the first sentence are in a tile too: their gradient is zero
    return q_begin, k_begin


def _first_of_groups(q_begin: Tensor, k_begin: Tensor) -> Tensor:
    """Find which sentences are the first of their group:  (B, n + 1) twice -> (B, n + 1), boolean.

    A group takes as many sentences as fit, and the next group begins after them: from a first
    sentence one jumps to the next first one. Once the sentences within n jumps are known, jumps of
    double length give those within 2n, so that a chain of thousands takes a dozen rounds.
    """
    numbers = torch.arange(q_begin.size(1), device=q_begin.device)
    last = (
        numbers[-1] - (q_begin == q_begin[:, -1:]).sum(1, keepdim=True) + 1
    )  # after all sentences

    # The first sentence that no longer fits on one of the sides; at least the next one.
    q_fitting = torch.searchsorted(q_begin, q_begin + TILE, right=True) - 1
    k_fitting = torch.searchsorted(k_begin, k_begin + TILE, right=True) - 1
    jump = torch.maximum(torch.minimum(q_fitting, k_fitting), numbers + 1).minimum(last)

    reached = torch.zeros_like(q_begin, dtype=torch.bool)
    reached[:, 0] = True
    for _ in range(q_begin.size(1).bit_length()):
        reached = reached.scatter(1, jump.where(reached, 0), True)
        jump = jump.gather(1, jump)
    return reached & (numbers < last)
