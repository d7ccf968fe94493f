"""The state of a search of fixed shape on a GPU: buffers that are written in place, for CUDA graphs.

`Transformer.decode` runs over it as over any `State`, with the layers of an accelerated model. Keys
and values never move: position t of row i lies in row `ancestors[i, t]`, and only that table follows
the search.
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
from transduce.model.state import LayerCache
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Rotation
from transduce.model.tokens import PADDING_SEGMENT, Tokens
from transduce.model.transformer import Transformer


class FixedState:
    """B sources of at most S tokens, and R rows, the hypotheses of each, of at most W tokens."""

    def __init__(self, model: Transformer, length: Tensor, S: int, R: int, W: int) -> None:
        """`length` (B,) is how many tokens each source's hypotheses have; the search moves it."""
        self.model, self.length, self.rows = model, length, R
        config, new = model.config, model.target_embedding.weight.new_zeros
        B, device = length.size(0), new(0).device
        size = config.h * (config.d_k + config.d_v)

        # The sources: how long they are (an empty place has 1), and their keys and values for all layers.
        self.lengths = torch.ones(B, dtype=torch.int32, device=device)
        self.columns = torch.arange(S, device=device, dtype=torch.int32)
        self.kept = new(B, S, len(model.decoder), size)
        decoder: list[Any] = list(model.decoder)
        attentions = [layer.cross_attention for layer in decoder]
        self.joined = Joined(*(part for each in attentions for part in (each.w_k, each.w_v)))
        self.memory = new(B, 1, 0)  # only its first size is read

        # The targets: in which row each position lies, and keys and values of each layer.
        self.ancestors = torch.zeros(R, W, dtype=torch.int32, device=device)
        self.segments = torch.zeros(R, 1, dtype=torch.int32, device=device)
        self.targets = [
            TargetCache(self, Joined(each.w_q, each.w_k, each.w_v), new(R, W, size), config.r)
            for each in (layer.self_attention for layer in decoder)
        ]
        memories = [MemoryCache(self, index) for index in range(len(model.decoder))]
        self.layers = [LayerCache(*pair) for pair in zip(self.targets, memories, strict=True)]  # type: ignore[arg-type]

    def refresh(self) -> None:
        """Take the model's weights as they are now: it may have learned since the last search."""
        copies = [
            pair
            for joined in (self.joined, *(target.joined for target in self.targets))
            for pair in joined.pairs
        ]
        # Few launches for all.
        torch._foreach_copy_([copy for copy, _ in copies], [weight for _, weight in copies])

    def read(self, places: Tensor, ids: Tensor, lengths: Tensor) -> None:
        """Put the memory of sources, ids (n, S) padded from their lengths (n,) on, into places (n,)."""
        inside = self.columns < lengths[:, None]
        positions = self.columns.where(inside, 0)
        segments = torch.zeros_like(ids).masked_fill(~inside, PADDING_SEGMENT)
        memory = self.model.encode(Tokens(ids, positions, segments, whole_rows(ids))).memory
        # Torch copies number by number: these are the largest; S is a multiple of 32.
        words = torch.int64
        new = self.joined(memory).view(len(places), -1).view(words)
        self.kept.flatten(1).view(words).index_copy_(0, places, new)
        self.lengths.index_copy_(0, places, lengths)

    def place(self, target: Tensor) -> Tokens:
        """Put each row's token (R, 1) at its sentence's length."""
        K = self.rows // self.length.size(0)
        positions = self.length[:, None].expand(-1, K).reshape(self.rows, 1)
        if self.model.config.positions == "learned":  # what lies beyond the table is over
            positions = positions.clamp(max=self.model.config.max_positions - 1)
        return Tokens(target, positions, self.segments)

    def extended(self, tokens: Tokens) -> FixedState:
        """Stay the same: caches are written in place, and the search moves the lengths."""
        return self

    def masks(self, tokens: Tokens, r: int | None) -> tuple[Mask, Mask]:
        """Give masks that nobody reads: the caches know lengths and neighbourhoods."""
        return Mask(tokens, tokens), Mask(tokens, tokens)


class Joined:
    """Several projections of one input as one product, with copies of their weights."""

    def __init__(self, *parts: nn.Linear) -> None:
        sizes = [part.out_features for part in parts]
        self.weight = torch.cat([part.weight for part in parts])
        self.pairs = list(
            zip(self.weight.split(sizes), (part.weight for part in parts), strict=True)
        )
        self.bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        if self.bias is not None:
            self.pairs += zip(self.bias.split(sizes), (part.bias for part in parts), strict=True)

    def __call__(self, x: Tensor) -> Tensor:
        """Their outputs side by side."""
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class TargetCache:
    """The targets' keys and values of one layer, which attends by itself (`kernels.fused`)."""

    state: FixedState
    joined: Joined
    kept: Tensor  # (R, W, h * (d_k + d_v))
    r: int | None

    def attend(self, attention: MultiHeadAttention, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Keep each row's new key and value, and attend to its own:  (R, 1, d_model) -> (R, 1, h * d_v)."""
        joined = self.joined(x)[:, 0]
        if rotation is not None:
            cosines, sines = (table.flatten(0, 2) for table in rotation)
            turn(joined, (cosines, sines), 2 * attention.h * attention.d_k)
        state, sizes = self.state, (attention.h, attention.d_k, self.r)
        return attend_self(joined, self.kept, state.ancestors, state.length, *sizes)[:, None]


@dataclass(frozen=True)
class MemoryCache:
    """The sources' keys and values of one layer, which attends by itself."""

    state: FixedState
    index: int

    def attend(self, attention: MultiHeadAttention, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Attend to each source, up to its length:  (B, K, d_model) -> (B, K, h * d_v)."""
        queries = attention.w_q(x).flatten(0, 1)
        state, sizes = self.state, (attention.h, attention.d_k)
        heads = attend_memory(queries, state.kept[:, :, self.index], state.lengths, *sizes)
        return heads.view(*x.shape[:2], -1)
