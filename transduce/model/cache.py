"""Keys and values that one attention keeps from one call of `decode` to the next.

Each call works on a fork, so the state that it was given stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import torch
from torch import Tensor

KeyValues = tuple[Tensor, Tensor]  # (B, h, K, d_k) and (B, h, K, d_v)


class Cache(Protocol):
    """What `MultiHeadAttention` asks of a cache."""

    complete: KeyValues | None  # all keys and values, where no more will come

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """Add new keys and values, and return them with those of earlier calls."""

    def fork(self) -> Self:
        """Make a cache to go on with; updating it does not change this one."""

    def select(self, rows: Tensor) -> Self:
        """Take these rows (n,) of the batch; a row may come several times or not at all."""


class GrowingCache:
    """Joins tensors at every call: right for chunks of any size and for packed rows."""

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
        """Go on from here."""
        return GrowingCache(self.now)

    def select(self, rows: Tensor) -> GrowingCache:
        """Take rows of the batch."""
        return GrowingCache(_select(self.now, rows))


class MemoryCache:
    """The keys and values of the source: projected at the first call, and complete from then on."""

    def __init__(self, before: KeyValues | None = None) -> None:
        self.complete = self.now = before

    def update(self, k: Tensor, v: Tensor) -> KeyValues:
        """Keep them all."""
        if torch.is_grad_enabled():  # a layer may be computed again, in the backward pass
            self.now = k, v
        else:  # many steps will read them
            self.complete = self.now = k.contiguous(), v.contiguous()
        return self.now

    def fork(self) -> MemoryCache:
        """Go on from here."""
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
        """Go on from here."""
        return LayerCache(self.target.fork(), self.memory.fork())


def _select(pair: KeyValues | None, rows: Tensor) -> KeyValues | None:
    if pair is None:
        return None
    return pair[0].index_select(0, rows), pair[1].index_select(0, rows)
