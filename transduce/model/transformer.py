"""Figure 1: the Transformer. `encode` a source once, then `decode` a whole target, a chunk or a single token alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.errors import InputError
from transduce.model.embedding import Embedding
from transduce.model.kernels import Places, build_mask, choose, embed
from transduce.model.layers import DecoderLayer, EncoderLayer, LayerCache
from transduce.model.norm import build_norm
from transduce.model.positions import Positions
from transduce.model.tokens import Tokens


@dataclass(frozen=True)
class State:
    """Where decoding stands: a value that is passed in, returned, and reordered by a search."""

    memory: Tensor  # (B, S, d_model), the encoder's output
    memory_places: Places
    places: Places | None = None  # of the target so far
    layers: tuple[LayerCache, ...] = ()  # empty before the first token

    def select(self, rows: Tensor) -> State:
        """The rows of the batch that a search goes on with, in its order; a row may be taken more than once."""
        return State(
            self.memory.index_select(0, rows),
            _select(self.memory_places, rows),
            None if self.places is None else _select(self.places, rows),
            tuple(layer.select(rows) for layer in self.layers),
        )

    def following(self, ids: Tensor) -> Tokens:
        """Target ids (B, T) with the places after what was decoded so far, for one sentence per row."""
        start = 0 if self.places is None else self.places.positions.size(1)
        positions = torch.arange(start, start + ids.size(1), device=ids.device, dtype=torch.int32).expand_as(ids)
        return Tokens(ids, positions, torch.zeros_like(positions))


def _select(places: Places, rows: Tensor) -> Places:
    return Places(places.segments.index_select(0, rows), places.positions.index_select(0, rows))


class Transformer(nn.Module):
    """The model of §3 and its variations; `config` says which."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        V, d_model = config.vocab_size, config.d_model
        # §3.4: with three-way sharing one matrix serves source, target and softmax.
        self.target_embedding = Embedding(V, d_model)
        self.source_embedding = (
            None if config.sharing == "three-way" else Embedding(config.source_vocab_size or V, d_model)
        )
        self.output = nn.Linear(d_model, V, bias=False) if config.sharing == "none" else None
        self.output_bias = nn.Parameter(torch.empty(V)) if config.output_bias else None
        self.source_positions = Positions(config)
        self.target_positions = Positions(config)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.N))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # Post-norm layers end in a norm; pre-norm stacks need one at their end.
        pre = config.norm_order == "pre"
        self.encoder_norm = build_norm(config) if pre else nn.Identity()
        self.decoder_norm = build_norm(config) if pre else nn.Identity()
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Embeddings of variance 1/d_model, so of variance 1 once scaled, and logits of variance 1; Xavier matrices."""
        if self.target_embedding.weight.is_meta:  # nothing to write to; and there, torch would load its compiler
            return
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
                module.weight[module.pad].zero_()
            elif isinstance(module, Positions) and module.table is not None:
                nn.init.normal_(module.table, std=math.sqrt(0.5))  # the variance of sines and cosines
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=self.config.d_model**-0.5)
            self.output.weight[self.config.pad].zero_()
        if self.output_bias is not None:
            nn.init.zeros_(self.output_bias)

    def forward(self, source: Tokens, target: Tokens) -> Tensor:
        """Logits of every target position, `target` being already shifted right:  (B, S), (B, T) -> (B, T, V)."""
        return self.decode(target, self.encode(source))[0]

    def encode(self, source: Tokens) -> State:
        """Read the source:  (B, S) -> the state from which decoding starts."""
        embedding = self.source_embedding or self.target_embedding
        self._check(source, "source_vocab_size" if self.config.source_vocab_size else "vocab_size")
        places = Places(source.segments, source.positions, source.tiles)
        mask = build_mask(choose(self.config, source.ids), places, places, causal=False, r=self.config.r)
        rotation = self.source_positions.rotation(source.positions)
        x = embed(source, embedding, self.source_positions, self._p_drop)
        for layer in self.encoder:
            x = layer(x, mask, rotation)
        return State(self.encoder_norm(x), places)

    def decode(self, target: Tokens, state: State) -> tuple[Tensor, State]:
        """Logits (B, T, V) of the tokens that follow each of `target` (B, T), and the state after them."""
        x, state = self.decode_hidden(target, state)
        return self.logits(x), state

    def decode_hidden(self, target: Tokens, state: State) -> tuple[Tensor, State]:
        """`decode` without the last product: (B, T, d_model), for a loss that never writes all logits."""
        self._check(target, "vocab_size")
        places = Places(target.segments, target.positions, target.tiles)
        keys = places if state.places is None else _join(state.places, places)
        kernel = choose(self.config, target.ids, ascending=state.places is None)
        target_mask = build_mask(kernel, places, keys, causal=True, r=self.config.r)
        memory_mask = build_mask(choose(self.config, target.ids), places, state.memory_places, causal=False)
        rotation = self.target_positions.rotation(target.positions)
        x = embed(target, self.target_embedding, self.target_positions, self._p_drop)
        caches = []
        for index, layer in enumerate(self.decoder):
            cache = state.layers[index] if state.layers else None
            x, cache = layer(x, state.memory, cache, target_mask, memory_mask, rotation)
            caches.append(cache)
        return self.decoder_norm(x), replace(state, places=keys, layers=tuple(caches))

    @property
    def _p_drop(self) -> float:
        """§5.4: of the sums of embeddings and positions."""
        return self.config.p_drop if self.training else 0.0

    @property
    def output_weight(self) -> Tensor:
        """The matrix before the softmax, (V, d_model)."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    def logits(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, V)."""
        return F.linear(x, self.output_weight, self.output_bias)

    def _check(self, tokens: Tokens, setting: str) -> None:
        """Refuse what would be read as something else. Only on the CPU: on a GPU it would wait for every batch."""
        if tokens.ids.numel() == 0:
            raise InputError(
                f"found tokens of shape {tuple(tokens.ids.shape)}; expected at least one sequence and token"
            )
        if tokens.ids.is_cuda or torch.compiler.is_compiling():
            return
        low, high, size = int(tokens.ids.min()), int(tokens.ids.max()), getattr(self.config, setting)
        if low < 0 or high >= size:
            raise InputError(f"found token ids from {low} to {high}; {setting} {size} allows 0 to {size - 1}")
        self.check_length(int(tokens.positions.max()) + 1)

    def check_length(self, longest: int) -> None:
        """Refuse a sequence that positions do not reach."""
        limit = self.config.max_positions
        if self.config.positions == "learned" and longest > limit:
            raise InputError(f"found a sequence of {longest} tokens; learned positions end at max_positions = {limit}")


def _join(before: Places, after: Places) -> Places:
    return Places(
        torch.cat([before.segments, after.segments], dim=1), torch.cat([before.positions, after.positions], dim=1)
    )
