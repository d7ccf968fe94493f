"""A batch of token ids, with positions and segments: padding and packing are the same thing.

Everything in the Transformer except attention works on each position alone, and attention is
allowed between tokens of equal segments. Padding is a segment of its own. So one sentence per row,
or ninety sentences packed into a row, run through the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.errors import InputError

PADDING_SEGMENT = 2**31 - 1  # the largest, so that segments ascend along a row


@dataclass(frozen=True)
class Tokens:
    """A batch of one side: ids, positions within the sentence, and which sentence, each (B, T)."""

    ids: Tensor
    positions: Tensor
    segments: Tensor
    # What a kernel computed from them ahead of time. The model never reads it.
    prepared: tuple[Tensor, ...] = ()

    @staticmethod
    def padded(sentences: Sequence[Sequence[int]], pad: int) -> Tokens:
        """Put one sentence in each row, padded at the end to the longest."""
        refuse_empty(sentences)
        width = max(map(len, sentences))
        return _stack([_row([sentence], width, pad) for sentence in sentences])

    @staticmethod
    def packed(
        rows: Sequence[Sequence[Sequence[int]]], pad: int, width: int | None = None
    ) -> Tokens:
        """Put several sentences in each row, padded at the end to `width` (or the longest row)."""
        for row in rows:
            refuse_empty(row)
        width = width or max(sum(map(len, row)) for row in rows)
        return _stack([_row(row, width, pad) for row in rows])

    @staticmethod
    def rows(ids: Tensor, *, pad: int | None = None, start: int = 0) -> Tokens:
        """Take each row of ids (B, T) as one sentence, or as its continuation at position `start`.

        Where `pad` is given, it fills the row's end.
        """
        if ids.dim() != 2 or ids.is_floating_point():
            raise InputError(
                f"found a tensor of shape {tuple(ids.shape)} and type {ids.dtype}; "
                "expected token ids of shape (rows, tokens)"
            )
        end = start + ids.size(1)
        positions = torch.arange(start, end, device=ids.device, dtype=torch.int32).expand_as(ids)
        segments = torch.zeros_like(positions)
        if pad is not None:
            segments = segments.masked_fill(ids == pad, PADDING_SEGMENT)
        return Tokens(ids, positions, segments)

    def shifted_right(self, pad: int) -> Tokens:
        """Make the decoder's input: each sentence moved right by one, after padding."""
        before = torch.full_like(self.ids, pad)
        before[:, 1:] = self.ids[:, :-1]
        return replace(self, ids=before.masked_fill(self.positions == 0, pad))

    def to(self, device: torch.device | str) -> Tokens:
        """Move the tokens to a device."""
        return self.each(lambda tensor: tensor.to(device))

    def tensors(self) -> list[Tensor]:
        """List all tensors of the batch."""
        return [self.ids, self.positions, self.segments, *self.prepared]

    def each(self, function: Callable[[Tensor], Tensor]) -> Tokens:
        """Apply a function to every tensor."""
        ids, positions, segments, *prepared = map(function, self.tensors())
        return Tokens(ids, positions, segments, tuple(prepared))

    def then(self, later: Tokens) -> Tokens:
        """Append the columns of later tokens."""
        return Tokens(
            torch.cat([self.ids, later.ids], dim=1),
            torch.cat([self.positions, later.positions], dim=1),
            torch.cat([self.segments, later.segments], dim=1),
        )

    def select(self, rows: Tensor) -> Tokens:
        """Take these rows (n,), in this order; a row may come several times or not at all."""
        return Tokens(self.ids[rows], self.positions[rows], self.segments[rows])

    def __getitem__(self, columns: slice) -> Tokens:
        """Take a slice of the columns, for decoding in chunks."""
        return Tokens(self.ids[:, columns], self.positions[:, columns], self.segments[:, columns])


def refuse_empty(sentences: Sequence[Sequence[int]]) -> None:
    """Check that every sequence has at least one token."""
    if not sentences or not all(map(len, sentences)):
        raise InputError(
            "found an empty sequence; expected at least one token (the end of the sentence)"
        )


def _row(
    sentences: Sequence[Sequence[int]], width: int, pad: int
) -> tuple[list[int], list[int], list[int]]:
    """Lay sentences out one after the other: ids, positions and segments of one row."""
    ids: list[int] = []
    positions: list[int] = []
    segments: list[int] = []
    for number, sentence in enumerate(sentences):
        ids += sentence
        positions += range(len(sentence))
        segments += [number] * len(sentence)
    missing = width - len(ids)
    if missing < 0:
        raise InputError(f"a row holds {len(ids)} tokens, more than its width of {width}")
    return ids + [pad] * missing, positions + [0] * missing, segments + [PADDING_SEGMENT] * missing


def _stack(rows: list[tuple[list[int], list[int], list[int]]]) -> Tokens:
    ids, positions, segments = (
        torch.tensor(column, dtype=torch.int32) for column in zip(*rows, strict=True)
    )
    return Tokens(ids, positions, segments)
