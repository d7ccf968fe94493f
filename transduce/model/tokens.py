"""Token ids with their places: padding and packing as one thing.

Everything in the Transformer but attention is position-wise, so a batch needs no more than this: attention is allowed
where segments are equal. Padding is a segment that no sentence is in; one sentence per row, or ninety packed into a
row, run through the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.errors import InputError
from transduce.model.tiles import Tiles, tile

PADDING_SEGMENT = 2**31 - 1  # the largest, so that segments ascend along a row


@dataclass(frozen=True)
class Tokens:
    """A batch of one side: ids, positions within the sentence, and which sentence, each (B, T)."""

    ids: Tensor
    positions: Tensor
    segments: Tensor
    tiles: Tiles | None = None  # made with those of the other side, or None: then the kernel that needs them makes them

    @staticmethod
    def padded(sentences: Sequence[Sequence[int]], pad: int) -> Tokens:
        """One sentence per row, padded at the end to the longest."""
        refuse_empty(sentences)
        width = max(map(len, sentences))
        return _stack([_row([sentence], width, pad) for sentence in sentences])

    @staticmethod
    def packed(rows: Sequence[Sequence[Sequence[int]]], pad: int, width: int | None = None) -> Tokens:
        """Several sentences per row, one after the other, padded at the end to `width` (or to the longest row)."""
        for row in rows:
            refuse_empty(row)
        width = width or max(sum(map(len, row)) for row in rows)
        return _stack([_row(row, width, pad) for row in rows])

    def shifted_right(self, pad: int) -> Tokens:
        """The decoder's input: each sentence one place later, from the zero vector that `pad` embeds to."""
        before = torch.full_like(self.ids, pad)
        before[:, 1:] = self.ids[:, :-1]
        return replace(self, ids=before.masked_fill(self.positions == 0, pad))

    def to(self, device: torch.device | str) -> Tokens:
        """The same tokens on a device."""
        return self.each(lambda tensor: tensor.to(device))

    def tensors(self) -> list[Tensor]:
        """All that they are made of."""
        tiles = [self.tiles.intervals, self.tiles.counts] if self.tiles else []
        return [self.ids, self.positions, self.segments, *tiles]

    def each(self, function: Callable[[Tensor], Tensor]) -> Tokens:
        """The same tokens, each tensor as the function makes it."""
        ids, positions, segments, *tiles = map(function, self.tensors())
        return Tokens(ids, positions, segments, Tiles(*tiles) if tiles else None)

    def __getitem__(self, place: slice) -> Tokens:
        """The columns of a slice, for decoding in chunks."""
        return Tokens(self.ids[:, place], self.positions[:, place], self.segments[:, place])


def tiled(source: Tokens, target: Tokens) -> tuple[Tokens, Tokens]:
    """Both sides with tiles for every attention inside and between them."""
    ours, theirs = tile(target.segments, source.segments)
    return replace(source, tiles=theirs), replace(target, tiles=ours)


def refuse_empty(sentences: Sequence[Sequence[int]]) -> None:
    """A sequence has at least one token."""
    if not sentences or not all(map(len, sentences)):
        raise InputError("found an empty sequence; expected at least one token (the end of the sentence)")


def _row(sentences: Sequence[Sequence[int]], width: int, pad: int) -> tuple[list[int], list[int], list[int]]:
    ids = [token for sentence in sentences for token in sentence]
    positions = [place for sentence in sentences for place in range(len(sentence))]
    segments = [number for number, sentence in enumerate(sentences) for _ in sentence]
    missing = width - len(ids)
    if missing < 0:
        raise InputError(f"a row holds {len(ids)} tokens, more than its width of {width}")
    return ids + [pad] * missing, positions + [0] * missing, segments + [PADDING_SEGMENT] * missing


def _stack(rows: list[tuple[list[int], list[int], list[int]]]) -> Tokens:
    ids, positions, segments = (torch.tensor(column, dtype=torch.int32) for column in zip(*rows, strict=True))
    return Tokens(ids, positions, segments)
