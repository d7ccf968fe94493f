"""Figure 1: the Transformer. `encode` reads a source, `decode` a target: at once or in steps."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.errors import InputError
from transduce.model.attention import Mask
from transduce.model.embedding import Embedding
from transduce.model.layers import DecoderLayer, EncoderLayer, build_norm
from transduce.model.positions import Positions
from transduce.model.state import LayerCache, State
from transduce.model.tokens import Tokens


class Transformer(nn.Module):
    """The model of §3 and its variations; `config` says which."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        V = config.vocab_size
        d_model = config.d_model

        # §3.4: with three-way sharing one matrix serves source, target and softmax.
        self.target_embedding = Embedding(V, d_model)
        self.source_embedding = None
        if config.sharing != "three-way":
            self.source_embedding = Embedding(config.source_pad + 1, d_model)
        self.output = nn.Linear(d_model, V, bias=False) if config.sharing == "none" else None
        self.output_bias = nn.Parameter(torch.empty(V)) if config.output_bias else None

        self.source_positions = Positions(config)
        self.target_positions = Positions(config)
        self.dropout = nn.Dropout(config.p_drop)  # §5.4
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.N))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

        # Post-norm layers end in a norm. A pre-norm stack needs one more at its end.
        pre = config.norm_order == "pre"
        self.encoder_norm = build_norm(config) if pre else nn.Identity()
        self.decoder_norm = build_norm(config) if pre else nn.Identity()
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Draw new weights.

        Embeddings have variance 1/d_model, so variance 1 once they are scaled, and logits of
        variance 1; other matrices are Xavier's.
        """
        if self.target_embedding.weight.is_meta:
            # There is nothing to write to, and torch would load its compiler for it.
            return
        std = self.config.d_model**-0.5
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Embedding):
                nn.init.normal_(module.weight, std=std)
                if self.config.adds_positions:
                    module.weight[module.pad].zero_()
            elif isinstance(module, Positions) and module.table is not None:
                # Sines and cosines have this deviation too.
                nn.init.normal_(module.table, std=math.sqrt(0.5))
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=std)
            self.output.weight[self.config.pad].zero_()
        if self.output_bias is not None:
            nn.init.zeros_(self.output_bias)

    def forward(self, source: Tokens | Tensor, target: Tokens | Tensor) -> Tensor:
        """Compute the logits that follow each target token:  (B, S), (B, T) -> (B, T, V).

        `target` is already shifted right. Both may be plain ids, one sentence per row, the source
        padded with `config.source_pad`.
        """
        return self.decode(target, self.encode(source))[0]

    def encode(self, source: Tokens | Tensor) -> State:
        """Read the source:  (B, S) -> the state from which decoding starts."""
        if isinstance(source, Tensor):
            source = Tokens.rows(source, pad=self.config.source_pad)
        _refuse_empty(source)
        mask = Mask(source, source, r=self.config.r)
        rotation = self.source_positions.rotation(source.positions)
        embedding = self.source_embedding or self.target_embedding
        x = self.embed(source, embedding, self.source_positions)  # (B, S, d_model)
        for layer in self.encoder:
            x = layer(x, mask, rotation)
        layers = tuple(LayerCache() for _ in self.decoder)
        return State(self.encoder_norm(x), source, layers)

    def decode(self, target: Tokens | Tensor, state: State) -> tuple[Tensor, State]:
        """Compute the logits (B, T, V) after each token of `target` (B, T), and the next state."""
        x, state = self.decode_hidden(target, state)
        return self.logits(x), state

    def decode_hidden(self, target: Tokens | Tensor, state: State) -> tuple[Tensor, State]:
        """Compute what `decode` computes before the last product: (B, T, d_model)."""
        # Extend the state by the new tokens.
        tokens = state.place(target)
        _refuse_empty(tokens)
        state = state.extended(tokens)
        target_mask, memory_mask = state.masks(tokens, self.config.r)

        # Embed them and run the stack of decoder layers.
        rotation = self.target_positions.rotation(tokens.positions)
        x = self.embed(tokens, self.target_embedding, self.target_positions)  # (B, T, d_model)
        for layer, cache in zip(self.decoder, state.layers, strict=True):
            x = layer(x, state.memory, target_mask, memory_mask, rotation, cache)
        return self.decoder_norm(x), state

    def embed(self, tokens: Tokens, embedding: Embedding, positions: Positions) -> Tensor:
        """Compute Dropout(embedding + position), §3.4, §3.5, §5.4:  (B, T) -> (B, T, d_model)."""
        return self.dropout(positions(embedding(tokens.ids), tokens.positions))

    def logits(self, x: Tensor) -> Tensor:
        """Compute logits from the decoder's output:  (B, T, d_model) -> (B, T, V)."""
        if self.output is None:
            return F.linear(x, self.target_embedding.weight, self.output_bias)
        logits = self.output(x)
        return logits if self.output_bias is None else logits + self.output_bias

    @property
    def output_weight(self) -> Tensor:
        """The matrix before the softmax, (V, d_model)."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    def check_length(self, longest: int) -> None:
        """Refuse a source that is longer than learned positions."""
        self.source_positions.check_length(longest)

    def extra_repr(self) -> str:
        """Show the number of parameters in `repr`."""
        return f"{sum(weight.numel() for weight in self.parameters()):,} parameters"


def _refuse_empty(tokens: Tokens) -> None:
    if tokens.ids.numel() == 0:
        shape = tuple(tokens.ids.shape)
        raise InputError(f"found tokens of shape {shape}; expected at least one sequence and token")
