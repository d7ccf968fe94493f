"""The decoder state of a search with fixed shapes, in buffers updated in place, for CUDA graphs.

`Transformer.decode` accepts it like any `State`, with the layers of an accelerated model. Keys and
values are never moved: position t of row i is stored in row `ancestors[i, t]`, and only this table
follows the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.kernels.decoding import attend_memory, attend_self
from transduce.kernels.products import turn
from transduce.kernels.tiles import whole_rows
from transduce.model.attention import Mask
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Rotation
from transduce.model.state import LayerCache
from transduce.model.tokens import PADDING_SEGMENT, Tokens
from transduce.model.transformer import Transformer


class FixedState:
    """The state of B sources of at most S tokens and of R hypotheses of at most W tokens."""

    def __init__(self, model: Transformer, length: Tensor, S: int, R: int, W: int) -> None:
        """`length` (B,) counts the tokens of each source's hypotheses; the search updates it."""
        self.model = model
        self.length = length
        self.rows = R
        config = model.config
        decoder: list[Any] = list(model.decoder)
        B = length.size(0)
        new_zeros = model.target_embedding.weight.new_zeros
        device = model.target_embedding.weight.device
        size = config.h * (config.d_k + config.d_v)

        # Sources: their lengths (1 in an unused place), and keys and values for all layers.
        self.lengths = torch.ones(B, dtype=torch.int32, device=device)
        self.columns = torch.arange(S, device=device, dtype=torch.int32)
        self.kept = new_zeros(B, S, len(decoder), size)
        projections = []
        for layer in decoder:
            projections += [layer.cross_attention.w_k, layer.cross_attention.w_v]
        self.joined = Joined(*projections)
        self.memory = new_zeros(B, 1, 0)  # only its first dimension is read

        # Targets: the row in which each position is stored, and keys and values of each layer.
        self.ancestors = torch.zeros(R, W, dtype=torch.int32, device=device)
        self.segments = torch.zeros(R, 1, dtype=torch.int32, device=device)
        self.targets = []
        for layer in decoder:
            attention = layer.self_attention
            joined = Joined(attention.w_q, attention.w_k, attention.w_v)
            kept = new_zeros(R, W, size)
            self.targets.append(TargetCache(joined, kept, self.ancestors, length, config.r))
        memories = [
            MemoryCache(self.kept[:, :, index], self.lengths) for index in range(len(decoder))
        ]
        self.layers = [LayerCache(*pair) for pair in zip(self.targets, memories, strict=True)]  # type: ignore[arg-type]

    def refresh(self) -> None:
        """Copy the model's current weights: it may have been trained since the last search."""
        pairs = [*self.joined.pairs]
        for target in self.targets:
            pairs += target.joined.pairs
        copies = [copy for copy, _ in pairs]
        weights = [weight for _, weight in pairs]
        torch._foreach_copy_(copies, weights)  # in few kernel launches

    def read(self, places: Tensor, ids: Tensor, lengths: Tensor) -> None:
        """Encode sources, ids (n, S) of lengths (n,), and store them at the places (n,)."""
        inside = self.columns < lengths[:, None]
        positions = self.columns.where(inside, 0)
        segments = torch.zeros_like(ids).masked_fill(~inside, PADDING_SEGMENT)
        memory = self.model.encode(Tokens(ids, positions, segments, whole_rows(ids))).memory
        # index_copy_ copies one element at a time, so view them as the widest type. The sizes
        # allow it because S is a multiple of 32.
        widest = torch.int64
        new = self.joined(memory).view(len(places), -1).view(widest)
        self.kept.flatten(1).view(widest).index_copy_(0, places, new)
        self.lengths.index_copy_(0, places, lengths)

    def place(self, target: Tensor) -> Tokens:
        """Return each row's token (R, 1) at the position given by its sentence's length."""
        K = self.rows // self.length.size(0)
        positions = self.length[:, None].expand(-1, K).reshape(self.rows, 1)
        if self.model.config.positions == "learned":
            # Only finished sentences can be beyond the table.
            positions = positions.clamp(max=self.model.config.max_positions - 1)
        return Tokens(target, positions, self.segments)

    def extended(self, tokens: Tokens) -> FixedState:
        """Return the same state: caches and lengths are updated in place."""
        return self

    def masks(self, tokens: Tokens, r: int | None) -> tuple[Mask, Mask]:
        """Return masks that are never read: the caches know the lengths and r."""
        return Mask(tokens, tokens), Mask(tokens, tokens)


class Joined:
    """Several projections of one input as one matrix product, with copies of their weights."""

    def __init__(self, *parts: nn.Linear) -> None:
        sizes = [part.out_features for part in parts]
        weights: list[Tensor] = [part.weight for part in parts]
        self.weight = torch.cat(weights)
        self.pairs = list(zip(self.weight.split(sizes), weights, strict=True))  # copy, original
        self.bias = None
        if parts[0].bias is not None:
            biases: list[Tensor] = [part.bias for part in parts]
            self.bias = torch.cat(biases)
            self.pairs += zip(self.bias.split(sizes), biases, strict=True)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs of all projections, concatenated."""
        return F.linear(x, self.weight, self.bias)


# The caches hold tensors of the state, not the state itself: a cycle of references would keep the
# memory on the GPU until Python's garbage collector runs.


@dataclass(frozen=True)
class TargetCache:
    """The targets' keys and values of one layer. It computes attention itself (`kernels.fused`)."""

    joined: Joined
    kept: Tensor  # (R, W, h * (d_k + d_v))
    ancestors: Tensor  # (R, W)
    length: Tensor  # (B,)
    r: int | None

    def attend(self, attention: MultiHeadAttention, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Store each row's new key and value, and attend to its target so far.

        (R, 1, d_model) -> (R, 1, h * d_v).
        """
        joined = self.joined(x)[:, 0]
        if rotation is not None:
            cosines, sines = (table.flatten(0, 2) for table in rotation)
            turn(joined, (cosines, sines), 2 * attention.h * attention.d_k)
        heads = attend_self(
            joined,
            self.kept,
            self.ancestors,
            self.length,
            attention.h,
            attention.d_k,
            self.r,
        )
        return heads[:, None]


@dataclass(frozen=True)
class MemoryCache:
    """The sources' keys and values of one layer. It computes attention itself."""

    kept: Tensor  # (B, S, h * (d_k + d_v))
    lengths: Tensor  # (B,)

    def attend(self, attention: MultiHeadAttention, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Attend to each source, up to its length:  (B, K, d_model) -> (B, K, h * d_v)."""
        queries = attention.w_q(x).flatten(0, 1)
        heads = attend_memory(queries, self.kept, self.lengths, attention.h, attention.d_k)
        return heads.view(*x.shape[:2], -1)
