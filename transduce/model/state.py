"""What decoding remembers: passed to `decode`, returned by it, and reordered by a search.

A `State` is the encoded source and the target so far, with a cache of keys and values for each
attention of the decoder. Each call of `decode` works on a fork of the caches, so the state that was
passed in does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import torch
from torch import Tensor

from transduce.model.attention import Mask
from transduce.model.tokens import Tokens

KeyValues = tuple[Tensor, Tensor]  # (B, h, K, d_k) and (B, h, K, d_v)


class Cache(Protocol):
    """What `MultiHeadAttention` asks of a cache."""

    complete: KeyValues | None  # all keys and values, once no more will be added

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """Add new keys and values, and return them with those of earlier calls."""

    def fork(self) -> Self:
        """Make a cache to go on with; updating it does not change this one."""

    def select(self, rows: Tensor) -> Self:
        """Take these rows (n,) of the batch; a row may come several times or not at all."""


class GrowingCache:
    """Concatenates tensors at every call; works for chunks of any size and for packed rows."""

    complete: KeyValues | None = None

    def __init__(self, before: KeyValues | None = None) -> None:
        self.before = self.now = before

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """(B, h, T, d_k), (B, h, T, d_v) -> (B, h, K, d_k), (B, h, K, d_v)."""
        if self.before is not None:
            k = torch.cat([self.before[0], k], dim=2)
            v = torch.cat([self.before[1], v], dim=2)
        self.now = k, v
        return k, v

    def fork(self) -> GrowingCache:
        """Continue from here."""
        return GrowingCache(self.now)

    def select(self, rows: Tensor) -> GrowingCache:
        """Take rows of the batch."""
        return GrowingCache(_select(self.now, rows))


class MemoryCache:
    """The keys and values of the source: projected at the first call, and complete from then on."""

    def __init__(self, before: KeyValues | None = None) -> None:
        self.complete = self.now = before

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """Keep all keys and values."""
        if torch.is_grad_enabled():
            # A layer may be computed again in the backward pass, so nothing is complete yet.
            self.now = k, v
        else:
            # Many steps will read them.
            self.complete = self.now = k.contiguous(), v.contiguous()
        return self.now

    def fork(self) -> MemoryCache:
        """Continue from here."""
        return MemoryCache(self.now)

    def select(self, rows: Tensor) -> MemoryCache:
        """Take rows of the batch."""
        return MemoryCache(_select(self.now, rows))


@dataclass(frozen=True)
class LayerCache:
    """The caches of one decoder layer."""

    target: Cache = field(default_factory=GrowingCache)
    memory: Cache = field(default_factory=MemoryCache)

    def fork(self) -> LayerCache:
        """Continue from here."""
        return LayerCache(self.target.fork(), self.memory.fork())


def _select(pair: KeyValues | None, rows: Tensor) -> KeyValues | None:
    if pair is None:
        return None
    return pair[0].index_select(0, rows), pair[1].index_select(0, rows)


class State:
    """The encoded source and the target so far. Chunks may have any size and packing."""

    def __init__(
        self,
        memory: Tensor,
        source: Tokens,
        layers: tuple[LayerCache, ...],
        target: Tokens | None = None,
    ) -> None:
        """Take the encoder's output `memory` (B, S, d_model) and all target tokens so far."""
        self.memory = memory
        self.source = source
        self.target = target
        self.layers = layers  # one for each decoder layer

    def place(self, target: Tokens | Tensor) -> Tokens:
        """Turn plain ids (B, T) into tokens that continue each row after what was decoded."""
        if isinstance(target, Tokens):
            return target
        start = 0 if self.target is None else self.target.ids.size(1)
        return Tokens.rows(target, start=start)

    def extended(self, tokens: Tokens) -> State:
        """Return the state after these tokens; `decode` fills its caches."""
        target = tokens if self.target is None else self.target.then(tokens)
        layers = tuple(layer.fork() for layer in self.layers)
        return State(self.memory, self.source, layers, target)

    def masks(self, tokens: Tokens, r: int | None) -> tuple[Mask, Mask]:
        """Return the masks of the newest tokens: over the target, and over the source."""
        assert self.target is not None
        target_mask = Mask(tokens, self.target, causal=True, r=r)
        memory_mask = Mask(tokens, self.source)
        return target_mask, memory_mask

    def select(self, rows: Tensor) -> State:
        """Take these rows (n,) of the batch; a row may come several times or not at all."""
        layers = (
            LayerCache(layer.target.select(rows), layer.memory.select(rows))
            for layer in self.layers
        )
        target = None if self.target is None else self.target.select(rows)
        return State(self.memory[rows], self.source.select(rows), tuple(layers), target)
