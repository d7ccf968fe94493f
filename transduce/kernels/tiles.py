"""Which sentences of a row are attended to together: as many, one after the other, as a tile has places for.

Results have a fixed shape, on any device: a feeding thread makes the tiles of a training step ahead of time, for
both sides at once; elsewhere they are made where they are needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.model.tokens import Tokens

TILE = 64  # tokens of one side of a tile, at most


class Tiles(NamedTuple):
    """The tiles of one side. Tiles of the other side with the same number hold the same sentences."""

    # (B, tiles, 3): first place of the sentences, the place after their last, and the part.
    intervals: Tensor
    # (B, 3): tiles of sentences that take more than two, which come first; more than one; all.
    counts: Tensor


def tile(queries: Tensor, keys: Tensor) -> tuple[Tiles, Tiles]:
    """The tiles of two sides by their segments, (B, Q) and (B, K), which ascend along each row.

    Part p of sentences is made of their TILE queries and of their TILE keys from place p TILE on.
    """
    Q, K = queries.size(1), keys.size(1)
    q_begin, k_begin = _sentences(queries, keys)
    first = _first_of_groups(q_begin, k_begin)
    # Two neighbours together have more than TILE tokens on one of the sides.
    groups = -(-(Q + K) // (TILE // 2)) + 1
    # One slot more, for all that begin no group.
    order = (first.cumsum(1) - 1).where(first, groups).clamp(max=groups)
    q_low, k_low = (
        begin.new_full((begin.size(0), groups + 1), end).scatter(1, order, begin.where(first, end))
        for begin, end in ((q_begin, Q), (k_begin, K))
    )
    intervals = [q_low[:, :-1], q_low[:, 1:], k_low[:, :-1], k_low[:, 1:]]
    parts = (
        torch.maximum(intervals[1] - intervals[0], intervals[3] - intervals[2]) + TILE - 1
    ) // TILE
    parts, longest_first = parts.sort(dim=1, descending=True)
    ends = parts.cumsum(1)
    numbers = torch.arange(groups + -(-Q // TILE) + -(-K // TILE), device=queries.device).expand(
        queries.size(0), -1
    )
    # Of each tile.
    group = torch.searchsorted(ends, numbers.contiguous(), right=True).clamp(max=groups - 1)
    part = numbers - (ends - parts).gather(1, group)
    columns = [interval.gather(1, longest_first).gather(1, group) for interval in intervals]
    counts = torch.stack(
        [parts.masked_fill(parts <= most, 0).sum(1) for most in (2, 1, 0)], dim=1
    ).int()
    q_side, k_side = (torch.stack([*columns[n : n + 2], part], dim=-1).int() for n in (0, 2))
    return Tiles(q_side, counts), Tiles(k_side, counts)


def tiled(source: Tokens, target: Tokens) -> tuple[Tokens, Tokens]:
    """Both sides with tiles for every attention inside and between them."""
    ours, theirs = tile(target.segments, source.segments)
    return replace(source, prepared=theirs), replace(target, prepared=ours)


def whole_rows(rows: Tensor) -> Tiles:
    """The tiles of rows (B, T) that hold one sentence each and its padding: all of a row meets."""
    B, T = rows.shape
    part = torch.arange(-(-T // TILE), device=rows.device, dtype=torch.int32)
    intervals = torch.stack([torch.zeros_like(part), torch.full_like(part, T), part], dim=1)
    counts = part.new_zeros(B, 3)
    counts[:, max(0, 3 - len(part)) :] = len(part)
    return Tiles(intervals.expand(B, -1, -1).contiguous(), counts)


def _sentences(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Where each sentence of the queries begins, and its keys; after the last one Q and K:  (B, n + 1) twice."""
    Q, K = queries.size(1), keys.size(1)
    begins = F.pad(queries[:, 1:] != queries[:, :-1], (1, 0), value=True)
    # A GPU is not asked: Python would wait for it.
    most = Q if queries.is_cuda else int(begins.sum(1).max())
    places = torch.arange(Q, device=queries.device).expand_as(queries)
    number = (begins.cumsum(1) - 1).where(begins, most)
    q_begin = places.new_full((queries.size(0), most + 1), Q).scatter(
        1, number, places.where(begins, Q)
    )
    k_begin = torch.searchsorted(keys, queries.gather(1, q_begin.clamp(max=Q - 1))).where(
        q_begin < Q, K
    )
    k_begin[:, 0] = 0  # keys that nobody asks for have a gradient too, of zero
    return q_begin, k_begin


def _first_of_groups(q_begin: Tensor, k_begin: Tensor) -> Tensor:
    """Whether a sentence is the first of its group: each takes as many as fit, and the next begins after them.

    From a first sentence one can jump to the next first one. Once all that n jumps reach are known, jumping twice at
    a time makes it 2n: a chain of thousands takes a dozen rounds.
    """
    numbers = torch.arange(q_begin.size(1), device=q_begin.device)
    # The first place after all sentences.
    last = numbers[-1] - (q_begin == q_begin[:, -1:]).sum(1, keepdim=True) + 1
    fitting = [
        torch.searchsorted(begin, begin + TILE, right=True) - 1 for begin in (q_begin, k_begin)
    ]
    jump = torch.maximum(torch.minimum(*fitting), numbers + 1).minimum(last)
    reached = torch.zeros_like(q_begin, dtype=torch.bool)
    reached[:, 0] = True
    for _ in range(q_begin.size(1).bit_length()):
        reached = reached.scatter(1, jump.where(reached, 0), True)
        jump = jump.gather(1, jump)
    return reached & (numbers < last)
