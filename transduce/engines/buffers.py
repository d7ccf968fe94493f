"""The decoder state of a step-by-step search, with keys and values in buffers.

`model.state.State` concatenates tensors and builds masks at every call, which works for chunks of
any size and packing. A search decodes one token per row and step, so this state can do less: it
writes keys and values into buffers, shares the memory of a source among its hypotheses, masks
nothing but padding, and copies rows only where they have moved.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from transduce.model.attention import Mask
from transduce.model.state import KeyValues, LayerCache, State
from transduce.model.tokens import PADDING_SEGMENT, Tokens

CAPACITY = 32  # positions in the first buffers


class BufferedCache:
    """The keys and values of one layer, in buffers that are updated in place and double in size."""

    complete: KeyValues | None = None

    def __init__(self, length: int = 0, buffers: KeyValues | None = None) -> None:
        self.length = length  # positions that are filled so far
        self.buffers = buffers  # (capacity, R, h, d_k) and (capacity, R, h, d_v)

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """Append keys and values, and return all so far.

        (R, h, T, d_k), (R, h, T, d_v) -> (R, h, K, d_k), (R, h, K, d_v).
        """
        start = self.length
        self.length += k.size(2)
        if self.buffers is None:
            self.buffers = self._allocate(k), self._allocate(v)
        if self.length > self.buffers[0].size(0):
            old_keys, old_values = self.buffers
            self.buffers = self._allocate(k), self._allocate(v)
            self.buffers[0][:start] = old_keys[:start]
            self.buffers[1][:start] = old_values[:start]

        keys, values = self.buffers
        keys[start : self.length] = k.permute(2, 0, 1, 3)
        values[start : self.length] = v.permute(2, 0, 1, 3)
        all_keys = keys[: self.length].permute(1, 2, 0, 3)
        all_values = values[: self.length].permute(1, 2, 0, 3)
        return all_keys, all_values

    def fork(self) -> BufferedCache:
        """Return the same cache: a search never continues from an earlier state."""
        return self

    def select(self, rows: Tensor) -> BufferedCache:
        """Return the cache of these rows (n,) of the batch."""
        if self.buffers is None:
            return self
        keys, values = self.buffers
        return BufferedCache(self.length, (self._select(keys, rows), self._select(values, rows)))

    def _allocate(self, new: Tensor) -> Tensor:
        """Return a buffer for tensors like `new`:  (R, h, T, d) -> (capacity, R, h, d)."""
        R, h, _, d = new.shape
        return new.new_empty(max(CAPACITY, 2 * self.length), R, h, d)

    def _select(self, buffer: Tensor, rows: Tensor) -> Tensor:
        """Copy the filled positions of these rows into a new buffer."""
        selected = buffer.new_empty(buffer.size(0), rows.size(0), *buffer.shape[2:])
        torch.index_select(buffer[: self.length], 1, rows, out=selected[: self.length])
        return selected


class StepMask(Mask):
    """The mask of one new token, which may attend to all before it. Keys are built when needed."""

    def __init__(self, queries: Tokens, length: int) -> None:
        self.queries = queries
        self.length = length
        self.causal = True
        self.r = None
        self.everything = True

    @cached_property
    def keys(self) -> Tokens:  # type: ignore[override]
        """The positions decoded so far, which are the same for all rows."""
        return _columns(self.length, self.queries)


class SearchState(State):
    """The state of R hypotheses of B sources, updated in place.

    The K = R / B hypotheses of a source are adjacent rows and share the memory of their source.
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
        self.memory_mask = memory_mask
        self.rows = rows
        self.length = length

    def place(self, target: Tokens | Tensor) -> Tokens:
        """Return ids (R, T) with the positions that follow the tokens decoded so far."""
        return target if isinstance(target, Tokens) else Tokens.rows(target, start=self.length)

    def extended(self, tokens: Tokens) -> SearchState:
        """Count these tokens as decoded."""
        self.length += tokens.ids.size(1)
        return self

    def masks(self, tokens: Tokens, r: int | None) -> tuple[Mask, Mask]:
        """Return the masks of target and memory. A single token needs none unless r limits it."""
        if r is None and tokens.ids.size(1) == 1:
            return StepMask(tokens, self.length), self.memory_mask
        return Mask(tokens, _columns(self.length, tokens), causal=True, r=r), self.memory_mask

    def select(self, rows: Tensor) -> SearchState:
        """Return the state of these rows (n,).

        Hypotheses of a source that stay adjacent go on sharing its memory.
        """
        if _is_range(rows, self.rows):
            return self
        count = rows.size(0)
        B = self.memory.size(0)

        # The source of each row. If rows come in groups of one source, one entry per group.
        per_source = self.rows // B
        sources = rows // per_source
        group = count // B if self.length == 0 and count % B == 0 else per_source
        if count % group == 0:
            groups = sources.view(-1, group)
            if group == 1 or bool((groups == groups[:, :1]).all()):
                sources = groups[:, 0]

        # Select the targets, and the sources only if they have changed.
        targets = [layer.target.select(rows) for layer in self.layers]
        memories = [layer.memory for layer in self.layers]
        memory = self.memory
        source = self.source
        mask = self.memory_mask
        if not _is_range(sources, B):
            memory = memory[sources]
            source = source.select(sources)
            memories = [layer_memory.select(sources) for layer_memory in memories]
            mask = Mask(mask.queries.select(sources), source, everything=mask.everything)
        layers = tuple(map(LayerCache, targets, memories))
        return SearchState(memory, source, layers, mask, count, self.length)


def buffered(state: State) -> SearchState:
    """Return the search state for the encoder's output."""
    padded = state.source.segments == PADDING_SEGMENT
    # In half precision sums are rounded differently with and without a mask, so that the result
    # would depend on whether the batch has padding: always use one.
    is_float32 = state.memory.dtype.itemsize >= 4
    queries = Tokens.rows(state.source.ids[:, :1])
    mask = Mask(queries, state.source, everything=is_float32 and not bool(padded.any()))
    layers = tuple(LayerCache(BufferedCache(), layer.memory) for layer in state.layers)
    return SearchState(state.memory, state.source, layers, mask, state.memory.size(0))


def _columns(length: int, tokens: Tokens) -> Tokens:
    """Return one row with the positions 0, ..., length - 1."""
    return Tokens.rows(torch.arange(length, device=tokens.ids.device)[None])


def _is_range(numbers: Tensor, end: int) -> bool:
    """Return whether the numbers are 0, 1, ..., end - 1."""
    size = numbers.size(0)
    return size == end and torch.equal(numbers, torch.arange(end, device=numbers.device))
