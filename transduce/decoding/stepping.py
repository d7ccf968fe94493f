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
from transduce.model.multi_head import KeyValues

Memory = list[tuple[Tensor, Tensor]]  # of each layer keys and values of the sources, (B, h, S, d_k) and (.., d_v)
CAPACITY = 32  # target positions of the first buffers


@dataclass(frozen=True)
class Cache:
    """What is remembered of R rows, the hypotheses of B sentences. A step writes into the buffers of the one before."""

    memory: Memory
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

    def attend(self, layer: int, q: Tensor, new: KeyValues, first: int) -> Tensor:
        """Keep each row's new key and value, and attend to those from `first` on:  (R, h, 1, d_k) -> (R, h, 1, d_v)."""
        keys, values = self.target[layer]
        keys[self.length], values[self.length] = new.k.squeeze(2), new.v.squeeze(2)
        k, v = (each[first : self.length + 1].permute(1, 2, 0, 3) for each in (keys, values))
        return F.scaled_dot_product_attention(q, k, v)


def begin(model: Transformer, source: Tokens) -> Cache:
    """The cache of these sources (B, S), one a row, before the first token."""
    state = model.encode(source)
    pairs = [layer.cross_attention.keys_values(state.memory) for layer in _layers(model)]
    mask = source.segments[:, None, None] != PADDING_SEGMENT
    exact = state.memory.dtype == torch.float32  # in half precision a mask that masks nothing still rounds otherwise
    memory = [(each.k.contiguous(), each.v.contiguous()) for each in pairs]
    return Cache(memory, None if exact and bool(mask.all()) else mask, source.ids.size(0), [])


def step(model: Transformer, tokens: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
    """The logits of what follows each row's token, and the cache with it:  (R,) -> (R, V)."""
    cache = cache.with_room()
    first = 0 if model.config.r is None else max(0, cache.length - model.config.r // 2)  # §4: a neighbourhood
    R, B = cache.rows, cache.memory[0][0].size(0)
    positions = torch.full((R, 1), cache.length, dtype=torch.int32, device=tokens.device)
    rotation = model.target_positions.rotation(positions)
    x = model.target_positions(model.target_embedding(tokens[:, None]), positions)  # (R, 1, d_model)
    for index, layer in enumerate(_layers(model)):
        attention = layer.self_attention
        q, new = attention.queries_keys_values(layer.self_attention_residual.before(x), rotation)
        heads = cache.attend(index, q, new, first).transpose(1, 2).flatten(2)  # (R, 1, h * d_v)
        x = layer.self_attention_residual.after(x, attention.w_o(heads))

        attention = layer.cross_attention
        q = attention.queries(layer.cross_attention_residual.before(x))  # (R, h, 1, d_k)
        q = q.view(B, R // B, *q.shape[1::2]).transpose(1, 2)  # the hypotheses of a sentence ask its memory together
        heads = F.scaled_dot_product_attention(q, *cache.memory[index], cache.mask)  # (B, h, R / B, d_v)
        x = layer.cross_attention_residual.after(x, attention.w_o(heads.transpose(1, 2).reshape(R, 1, -1)))

        x = layer.feed_forward_residual.after(x, layer.feed_forward(layer.feed_forward_residual.before(x)))
    logits = model.logits(model.decoder_norm(x))[:, 0]
    return logits, replace(cache, length=cache.length + 1)


def _layers(model: Transformer) -> list[DecoderLayer]:
    return list(model.decoder)  # type: ignore[arg-type]
