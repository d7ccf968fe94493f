"""One token further for every row, with keys and values kept in buffers: `Transformer.decode` without its copies.

`decode` joins tensors and masks anew at every step, which is right for any chunk of any packing. A search moves all
rows by one token, one sentence per row: keys and values are written into buffers that double when they are full,
the hypotheses of a sentence share its memory, nothing but padding is masked, and what stays in place is not moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.model import PADDING_SEGMENT, Tokens, Transformer
from transduce.model.layers import DecoderLayer

CAPACITY = 32  # target positions of the first buffers


@dataclass(frozen=True)
class Cache:
    """What is remembered of R rows, the hypotheses of B sentences. A step writes into the buffers of the one before."""

    memory: list[tuple[Tensor, Tensor]]  # of each layer keys and values of the sources, (B, h, S, d_k) and (.., d_v)
    mask: Tensor | None  # (B, 1, 1, S), True = may attend; None: no source is padded
    rows: int
    target: list[tuple[Tensor, Tensor]]  # of each layer keys and values, (capacity, R, h, d_k) and (.., d_v)
    length: int = 0  # target positions that are filled

    def select(self, rows: Tensor) -> Cache:
        """These rows in this order. All rows of a sentence come, side by side, or none."""
        B = self.memory[0][0].size(0)
        count = rows.size(0)
        if count == self.rows and torch.equal(rows, torch.arange(count, device=rows.device)):
            return self
        if self.length == 0:  # a search begins: as many rows as the beam is wide for each sentence
            return replace(self, rows=count)
        memory, mask = self.memory, self.mask
        if count != self.rows:  # some sentences have ended
            sentences = rows[:: self.rows // B] // (self.rows // B)
            memory = [(k.index_select(0, sentences), v.index_select(0, sentences)) for k, v in memory]
            mask = None if mask is None else mask.index_select(0, sentences)
        return Cache(
            memory, mask, count, [(self._moved(k, rows), self._moved(v, rows)) for k, v in self.target], self.length
        )

    def _moved(self, buffer: Tensor, rows: Tensor) -> Tensor:
        moved = buffer.new_empty(buffer.size(0), rows.size(0), *buffer.shape[2:])
        torch.index_select(buffer[: self.length], 1, rows, out=moved[: self.length])
        return moved

    def with_room(self) -> Cache:
        """Buffers that have a place for one more position."""
        if self.target and self.length < self.target[0][0].size(0):
            return self
        capacity = max(CAPACITY, 2 * self.length)
        grown = []
        for k, v in self.memory:
            pair = tuple(each.new_empty(capacity, self.rows, each.size(1), each.size(3)) for each in (k, v))
            grown.append((pair[0], pair[1]))
        for old, new in zip(self.target, grown, strict=False):
            for before, after in zip(old, new, strict=True):
                after[: self.length] = before
        return replace(self, target=grown)


def begin(model: Transformer, source: Tokens) -> Cache:
    """Read the sources, one a row:  (B, S) -> the cache before the first token."""
    state = model.encode(source)
    memory = [layer.cross_attention.keys_values(state.memory) for layer in _layers(model)]
    mask = (source.segments != PADDING_SEGMENT)[:, None, None]
    return Cache(
        [(each.k.contiguous(), each.v.contiguous()) for each in memory],
        None if source.ids.size(0) == 1 or bool(mask.all()) else mask,
        source.ids.size(0),
        [],
    )


def _layers(model: Transformer) -> list[DecoderLayer]:
    return list(model.decoder)  # type: ignore[arg-type]


def step(model: Transformer, tokens: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
    """The logits of what follows each row's token, and the cache with it:  (R,) -> (R, V)."""
    cache = cache.with_room()
    t, R, r = cache.length, cache.rows, model.config.r
    first = 0 if r is None else max(0, t - r // 2)  # §4: a neighbourhood
    position = torch.full((R, 1), t, dtype=torch.int32, device=tokens.device)
    rotation = model.target_positions.rotation(position[:1])
    x = model.target_positions(model.target_embedding(tokens[:, None]), position)
    for layer, memory, (keys, values) in zip(_layers(model), cache.memory, cache.target, strict=True):
        attention = layer.self_attention
        q, new = attention.queries_keys_values(layer.self_attention_residual.before(x), rotation)
        keys[t], values[t] = new.k[:, :, 0], new.v[:, :, 0]
        k, v = (each[first : t + 1].permute(1, 2, 0, 3) for each in (keys, values))  # (R, h, t + 1 - first, d)
        heads = F.scaled_dot_product_attention(q, k, v)
        x = layer.self_attention_residual.after(x, attention.w_o(heads.transpose(1, 2).flatten(2)))

        attention = layer.cross_attention
        B, h, _, d_k = memory[0].shape
        q = attention.queries(layer.cross_attention_residual.before(x))  # (R, h, 1, d_k)
        q = q.view(B, R // B, h, d_k).transpose(1, 2)  # the hypotheses of a sentence ask its memory together
        heads = F.scaled_dot_product_attention(q, memory[0], memory[1], cache.mask)  # (B, h, R / B, d_v)
        heads = heads.transpose(1, 2).reshape(R, 1, -1)
        x = layer.cross_attention_residual.after(x, attention.w_o(heads))

        x = layer.feed_forward_residual.after(x, layer.feed_forward(layer.feed_forward_residual.before(x)))
    return model.logits(model.decoder_norm(x))[:, 0], replace(cache, length=t + 1)
