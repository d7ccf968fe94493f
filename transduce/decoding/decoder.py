"""The model as a search of fixed shape on a GPU needs it: sources read into buffers, and one token further.

What `stepping.begin` and `stepping.step` compute, in as few kernels as there are: weights that see the same input
are joined once, keys and values never move, and `kernels` does what stands between the products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.decoding import kernels
from transduce.model import PADDING_SEGMENT, Tokens, Transformer
from transduce.model.layers import DecoderLayer, Residual
from transduce.model.positions import rotate
from transduce.model.tiles import whole_rows


class Decoder:
    """B sources of at most S tokens, and R rows, the hypotheses of each side by side, of at most W tokens."""

    def __init__(self, model: Transformer, B: int, S: int, R: int, W: int) -> None:
        shape, new = model.config, model.target_embedding.weight.new_zeros
        self.model, self.layers = model, list[DecoderLayer](model.decoder)  # type: ignore[arg-type]
        size, count, device = shape.h * (shape.d_k + shape.d_v), shape.decoder_layers, new(0).device
        self.memory, self.cache = new(B, S, count, size), new(count, R, W, size)
        self.lengths = torch.ones(B, dtype=torch.int32, device=device)  # of the sources; an empty place has one too
        self.ancestors = torch.zeros(R, W, dtype=torch.int32, device=device)  # see `kernels`
        self.positions = torch.arange(W, device=device)
        self.columns = torch.arange(S, device=device, dtype=torch.int32)
        self.joined = [Joined(a.self_attention.w_q, a.self_attention.w_k, a.self_attention.w_v) for a in self.layers]
        self.sources = Joined(*(w for a in self.layers for w in (a.cross_attention.w_k, a.cross_attention.w_v)))
        self.table = new(W, shape.d_model)  # of target positions
        self.refresh()

    def refresh(self) -> None:
        """Take the model's weights as they are now: it may have learned since the last search."""
        for joined in (*self.joined, self.sources):
            joined.refresh()
        last = self.model.config.max_positions - 1 if self.model.config.positions == "learned" else len(self.table)
        places = self.positions.clamp(max=last)[None]
        self.table.copy_(self.model.target_positions(torch.zeros_like(self.table)[None], places)[0])

    def read(self, places: Tensor, ids: Tensor, lengths: Tensor) -> None:
        """Put the memory of sources, ids (n, S) padded from their lengths (n,) on, into places (n,)."""
        inside = self.columns < lengths[:, None]
        positions, segments = self.columns.where(inside, 0), torch.zeros_like(ids).masked_fill(~inside, PADDING_SEGMENT)
        state = self.model.encode(Tokens(ids, positions, segments, whole_rows(ids)))
        words = torch.int64  # torch copies number by number, and these are the largest; S is a multiple of 32
        new = self.sources(state.memory).view(len(places), -1).view(words)
        self.memory.flatten(1).view(words).index_copy_(0, places, new)
        self.lengths.index_copy_(0, places, lengths)

    def step(self, tokens: Tensor, length: Tensor) -> Tensor:
        """The logits of what follows each row's token, at its sentence's length:  (R,), (B,) -> (R, V)."""
        model, shape = self.model, self.model.config
        embedding = model.target_embedding
        x = kernels.embed(tokens, embedding.weight, embedding.scale, self.table, length)
        rotation = None
        if shape.positions == "rotary":
            places = length.repeat_interleave(len(tokens) // len(length), output_size=len(tokens))
            rotation = model.target_positions.rotation(places[:, None])
        for index, layer in enumerate(self.layers):
            joined = self.joined[index](layer.self_attention_residual.before(x))
            if rotation is not None:
                turned = joined[:, : 2 * shape.h * shape.d_k].view(len(tokens), -1, 1, shape.d_k)
                turned.copy_(rotate(turned, rotation))
            heads = kernels.attend_self(joined, self.cache[index], self.ancestors, length, shape.h, shape.d_k, shape.r)
            x = _after(layer.self_attention_residual, x, layer.self_attention.w_o(heads))
            queries = layer.cross_attention.w_q(layer.cross_attention_residual.before(x))
            heads = kernels.attend_memory(queries, self.memory[:, :, index], self.lengths, shape.h, shape.d_k)
            x = _after(layer.cross_attention_residual, x, layer.cross_attention.w_o(heads))
            seen = layer.feed_forward_residual.before(x)
            x = _after(layer.feed_forward_residual, x, layer.feed_forward(seen[:, None])[:, 0])
        return model.logits(model.decoder_norm(x))


class Joined:
    """Several projections of one input as one product."""

    def __init__(self, *parts: nn.Linear) -> None:
        self.parts = parts
        self.weight = torch.cat([part.weight for part in parts])
        self.bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])

    def refresh(self) -> None:
        """Copy the weights again."""
        torch.cat([part.weight for part in self.parts], out=self.weight)
        if self.bias is not None:
            torch.cat([part.bias for part in self.parts], out=self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Their outputs side by side."""
        return F.linear(x, self.weight, self.bias)


def _after(residual: Residual, x: Tensor, output: Tensor) -> Tensor:
    if residual.post and isinstance(residual.norm, nn.LayerNorm):
        return kernels.add_norm(x, output, residual.norm)
    return residual.after(x, output)
