"""The state of a search: one sentence per row, moved forward token by token, with buffers.

`State` joins tensors and builds masks anew at every call, which is right for any chunk of any
packing. Here keys and values are written into buffers, hypotheses of one source share its memory,
nothing but padding is masked, and what stays in place is not moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.model.attention import Mask
from transduce.model.cache import KeyValues, LayerCache
from transduce.model.state import State, forked
from transduce.model.tokens import PADDING_SEGMENT, Tokens

CAPACITY = 32  # positions of the first buffers


class BufferedCache:
    """Writes into buffers that double when they are full: for a search, token by token.

    Forks share the buffers, so only the newest fork may be updated.
    """

    complete: KeyValues | None = None

    def __init__(self, length: int = 0, buffers: KeyValues | None = None) -> None:
        self.before = self.length = length  # positions that are filled
        self.buffers = buffers  # (capacity, B, h, d_k) and (capacity, B, h, d_v)

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """(B, h, T, d_k), (B, h, T, d_v) -> (B, h, K, d_k), (B, h, K, d_v)."""
        self.length = self.before + k.size(2)
        self.buffers = keys, values = self._with_room(k, v)
        keys[self.before : self.length] = k.permute(2, 0, 1, 3)
        values[self.before : self.length] = v.permute(2, 0, 1, 3)
        return keys[: self.length].permute(1, 2, 0, 3), values[: self.length].permute(1, 2, 0, 3)

    def fork(self) -> BufferedCache:
        """Go on from here, in the same buffers."""
        return BufferedCache(self.length, self.buffers)

    def select(self, rows: Tensor) -> BufferedCache:
        """Take rows of the batch."""
        if self.buffers is None:
            return self
        keys, values = (self._moved(buffer, rows) for buffer in self.buffers)
        return BufferedCache(self.length, (keys, values))

    def _with_room(self, k: Tensor, v: Tensor) -> KeyValues:
        if self.buffers is not None and self.length <= self.buffers[0].size(0):
            return self.buffers
        capacity = max(CAPACITY, 2 * self.length)
        keys = k.new_empty(capacity, k.size(0), k.size(1), k.size(3))
        values = v.new_empty(capacity, v.size(0), v.size(1), v.size(3))
        if self.buffers is not None:
            keys[: self.before] = self.buffers[0][: self.before]
            values[: self.before] = self.buffers[1][: self.before]
        return keys, values

    def _moved(self, buffer: Tensor, rows: Tensor) -> Tensor:
        moved = buffer.new_empty(buffer.size(0), rows.size(0), *buffer.shape[2:])
        torch.index_select(buffer[: self.length], 1, rows, out=moved[: self.length])
        return moved


@dataclass(frozen=True, kw_only=True)
class SearchState(State):
    """R rows of one sentence each, moved forward together.

    Rows are the hypotheses of B sources, K = R / B side by side: these share their source's memory.
    """

    rows: int
    length: int  # tokens decoded so far
    memory_mask: Mask  # (B, 1, 1, S)

    def place(self, target: Tokens | Tensor) -> Tokens:
        """Give ids (R, T) their places after what was decoded."""
        return target if isinstance(target, Tokens) else Tokens.rows(target, start=self.length)

    def extended(self, tokens: Tokens) -> SearchState:
        """Make the state after these tokens."""
        length = self.length + tokens.ids.size(1)
        return replace(self, length=length, layers=forked(self.layers))

    def masks(self, tokens: Tokens, r: int | None) -> tuple[Mask, Mask]:
        """Mask nothing of the target for a single token, unless it has a neighbourhood."""
        keys = Tokens.rows(torch.arange(self.length, device=tokens.ids.device)[None])  # for any row
        alone = r is None and tokens.ids.size(1) == 1
        return Mask(tokens, keys, causal=True, r=r, everything=alone), self.memory_mask

    def select(self, rows: Tensor) -> SearchState:
        """Take these rows; hypotheses of a source that stay side by side go on sharing its memory."""
        if _is_range(rows, self.rows):
            return self
        count, B = rows.size(0), self.memory.size(0)
        # Which source each row belongs to, (sources, rows of one source) if they stay together.
        together = count // B if self.length == 0 and count % B == 0 else self.rows // B
        sources = rows // (self.rows // B)
        if count % together == 0:
            groups = sources.view(-1, together)
            if bool((groups == groups[:, :1]).all()):
                sources = groups[:, 0]
        same = _is_range(sources, B)
        layers = tuple(
            LayerCache(layer.target.select(rows), layer.memory if same else layer.memory.select(sources))
            for layer in self.layers
        )
        if same:
            return replace(self, layers=layers, rows=count)
        mask = self.memory_mask
        source = self.source.select(sources)
        mask = Mask(mask.queries.select(sources), source, everything=mask.everything)
        memory = self.memory[sources]
        return replace(self, memory=memory, source=source, layers=layers, rows=count, memory_mask=mask)


def buffered(state: State) -> SearchState:
    """Make the state of a search out of what the encoder gave."""
    padded = state.source.segments == PADDING_SEGMENT
    # In half precision even a mask that masks nothing changes how sums are rounded.
    exact = state.memory.dtype.itemsize >= 4
    queries = Tokens.rows(state.source.ids[:, :1])
    mask = Mask(queries, state.source, everything=exact and not bool(padded.any()))
    layers = tuple(LayerCache(BufferedCache(), layer.memory) for layer in state.layers)
    return SearchState(
        memory=state.memory,
        source=state.source,
        layers=layers,
        rows=state.memory.size(0),
        length=0,
        memory_mask=mask,
    )


def _is_range(numbers: Tensor, end: int) -> bool:
    """Tell whether the numbers are 0, 1, ..., end - 1."""
    size = numbers.size(0)
    return size == end and torch.equal(numbers, torch.arange(end, device=numbers.device))
