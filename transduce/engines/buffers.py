"""The state of a search: one sentence per row, moved forward token by token, with buffers.

`State` joins tensors and builds masks anew at every call, which is right for any chunk of any
packing. Here keys and values are written into buffers, hypotheses of one source share its memory,
nothing but padding is masked, and what stays in place is not moved.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from transduce.model.attention import Mask
from transduce.model.state import KeyValues, LayerCache
from transduce.model.state import State
from transduce.model.tokens import PADDING_SEGMENT, Tokens

CAPACITY = 32  # positions of the first buffers


class BufferedCache:
    """Keys and values in buffers that double when they are full. It is moved forward in place."""

    complete: KeyValues | None = None

    def __init__(self, length: int = 0, buffers: KeyValues | None = None) -> None:
        self.length = length  # positions that are filled
        self.buffers = buffers  # (capacity, R, h, d_k) and (capacity, R, h, d_v)

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """(R, h, T, d_k), (R, h, T, d_v) -> (R, h, K, d_k), (R, h, K, d_v)."""
        start, self.length = self.length, self.length + k.size(2)
        if self.buffers is None:
            self.buffers = self._larger(k), self._larger(v)
        if self.length > self.buffers[0].size(0):
            before, self.buffers = self.buffers, (self._larger(k), self._larger(v))
            self.buffers[0][:start] = before[0][:start]
            self.buffers[1][:start] = before[1][:start]
        keys, values = self.buffers
        keys[start : self.length] = k.permute(2, 0, 1, 3)
        values[start : self.length] = v.permute(2, 0, 1, 3)
        return keys[: self.length].permute(1, 2, 0, 3), values[: self.length].permute(1, 2, 0, 3)

    def fork(self) -> BufferedCache:
        """Go on in the same buffers: a search never goes back."""
        return self

    def select(self, rows: Tensor) -> BufferedCache:
        """Take rows of the batch."""
        if self.buffers is None:
            return self
        keys, values = (self._moved(buffer, rows) for buffer in self.buffers)
        return BufferedCache(self.length, (keys, values))

    def _larger(self, new: Tensor) -> Tensor:
        return new.new_empty(max(CAPACITY, 2 * self.length), *new.shape[:2], new.size(3))

    def _moved(self, buffer: Tensor, rows: Tensor) -> Tensor:
        moved = buffer.new_empty(buffer.size(0), rows.size(0), *buffer.shape[2:])
        torch.index_select(buffer[: self.length], 1, rows, out=moved[: self.length])
        return moved


class StepMask(Mask):
    """The mask of a single token, which may attend to all before it; places of keys are made if they are asked for."""

    def __init__(self, queries: Tokens, length: int) -> None:
        self.queries, self.length = queries, length
        self.causal, self.r, self.everything = True, None, True

    @cached_property
    def keys(self) -> Tokens:  # type: ignore[override]
        """The positions so far, for any row."""
        return _columns(self.length, self.queries)


class SearchState(State):
    """R rows of one sentence each, moved forward together and in place.

    Rows are the hypotheses of B sources, K = R / B side by side: these share their source's memory.
    """

    def __init__(
        self,
        memory: Tensor,
        source: Tokens,
        layers: tuple[LayerCache, ...],
        memory_mask: Mask,
        rows: int,
        length: int = 0,
    ) -> None:
        """`memory_mask` is (B, 1, 1, S); `length` counts the tokens decoded so far."""
        super().__init__(memory, source, layers)
        self.memory_mask, self.rows, self.length = memory_mask, rows, length

    def place(self, target: Tokens | Tensor) -> Tokens:
        """Give ids (R, T) their places after what was decoded."""
        return target if isinstance(target, Tokens) else Tokens.rows(target, start=self.length)

    def extended(self, tokens: Tokens) -> SearchState:
        """Move on by these tokens."""
        self.length += tokens.ids.size(1)
        return self

    def masks(self, tokens: Tokens, r: int | None) -> tuple[Mask, Mask]:
        """Mask nothing of the target for a single token, unless it has a neighbourhood."""
        if r is None and tokens.ids.size(1) == 1:
            return StepMask(tokens, self.length), self.memory_mask
        return Mask(tokens, _columns(self.length, tokens), causal=True, r=r), self.memory_mask

    def select(self, rows: Tensor) -> SearchState:
        """Take these rows; hypotheses of a source that stay side by side go on sharing its memory."""
        if _is_range(rows, self.rows):
            return self
        count, B = rows.size(0), self.memory.size(0)

        # Which source each row belongs to; one for each group of rows, if these stay together.
        together = count // B if self.length == 0 and count % B == 0 else self.rows // B
        sources = rows // (self.rows // B)
        if count % together == 0:
            groups = sources.view(-1, together)
            if together == 1 or bool((groups == groups[:, :1]).all()):
                sources = groups[:, 0]

        targets = [layer.target.select(rows) for layer in self.layers]
        memories = [layer.memory for layer in self.layers]
        memory, source, mask = self.memory, self.source, self.memory_mask
        if not _is_range(sources, B):
            memory, source = memory[sources], source.select(sources)
            memories = [each.select(sources) for each in memories]
            mask = Mask(mask.queries.select(sources), source, everything=mask.everything)
        layers = tuple(map(LayerCache, targets, memories))
        return SearchState(memory, source, layers, mask, count, self.length)


def buffered(state: State) -> SearchState:
    """Make the state of a search out of what the encoder gave."""
    padded = state.source.segments == PADDING_SEGMENT
    # In half precision even a mask that masks nothing changes how sums are rounded.
    exact = state.memory.dtype.itemsize >= 4
    queries = Tokens.rows(state.source.ids[:, :1])
    mask = Mask(queries, state.source, everything=exact and not bool(padded.any()))
    layers = tuple(LayerCache(BufferedCache(), layer.memory) for layer in state.layers)
    return SearchState(state.memory, state.source, layers, mask, state.memory.size(0))


def _columns(length: int, tokens: Tokens) -> Tokens:
    return Tokens.rows(torch.arange(length, device=tokens.ids.device)[None])


def _is_range(numbers: Tensor, end: int) -> bool:
    """Tell whether the numbers are 0, 1, ..., end - 1."""
    size = numbers.size(0)
    return size == end and torch.equal(numbers, torch.arange(end, device=numbers.device))
