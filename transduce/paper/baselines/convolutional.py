"""A convolutional encoder-decoder with attention, after ConvS2S (Gehring et al., 2017).

Every layer is a convolution with a gated linear unit and a residual connection; every decoder layer
attends to the encoder's output. A decoder layer sees its own and the K - 1 positions before.

With Adam and the Transformer's learning rate, ConvS2S diverges at d_model = 512. So attention here
departs from it in two ways. Scores are divided by sqrt(d), as in the Transformer: otherwise one
step changes them by several units. What attention finds is not multiplied by sqrt(m) for a source
of m positions: what all positions share would change with the length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.embedding import Embedding
from transduce.model.positions import sinusoids
from transduce.model.tokens import PADDING_SEGMENT, Tokens
from transduce.paper.baselines.embeddings import build_embeddings

K = 3  # width of every convolution
HALF = math.sqrt(0.5)  # keeps the variance of a sum of two
SMALL = 0.1  # the deviation of embeddings at first; no layer normalizes what they grow into


class GatedConvolution(nn.Module):
    """A convolution to 2 d channels, half of which gate the other half."""

    def __init__(self, d: int, p_drop: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2 * d, d, K))
        self.bias = nn.Parameter(torch.zeros(2 * d))
        self.dropout = nn.Dropout(p_drop)
        nn.init.normal_(self.weight, std=math.sqrt(4 * (1 - p_drop) / (K * d)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T + K - 1, d) -> (B, T, d): the first and last positions are context only."""
        y = F.conv1d(self.dropout(x).transpose(1, 2), self.weight, self.bias)
        return F.glu(y, dim=1).transpose(1, 2)


class Attention(nn.Module):
    """Dot-product attention of a decoder layer, whose values also contain the embeddings."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.w_q = _linear(d)
        self.w_o = _linear(d)

    def forward(self, x: Tensor, embedded: Tensor, state: ConvolutionalState) -> Tensor:
        """(B, T, d), (B, T, d) -> (B, T, d)."""
        queries = (self.w_q(x) + embedded) * HALF
        scores = queries @ state.keys.transpose(1, 2) / math.sqrt(x.size(-1))  # (B, T, S)
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~state.allowed.unsqueeze(1), lowest).softmax(dim=-1)
        result: Tensor = self.w_o(weights @ state.values)
        return result


@dataclass(frozen=True)
class ConvolutionalState:
    """The encoded source, and of each decoder layer the last K - 1 inputs."""

    keys: Tensor  # (B, S, d)
    values: Tensor  # (B, S, d)
    allowed: Tensor  # (B, S): which positions are no padding
    position: int  # of the next target token
    layers: tuple[Tensor, ...]  # each (B, K - 1, d)

    def select(self, rows: Tensor) -> ConvolutionalState:
        """Take these rows (n,) of the batch; a row may come several times or not at all."""
        layers = tuple(inputs[rows] for inputs in self.layers)
        return ConvolutionalState(
            self.keys[rows], self.values[rows], self.allowed[rows], self.position, layers
        )


class ConvolutionalModel(nn.Module):
    """A model like `Transformer`, with N gated convolutions of d_model channels on each side."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        d = config.d_model
        self.target_embedding, self.source_embedding = build_embeddings(config)
        self.encoder = nn.ModuleList(GatedConvolution(d, config.p_drop) for _ in range(config.N))
        layers = range(config.decoder_layers)
        self.decoder = nn.ModuleList(GatedConvolution(d, config.p_drop) for _ in layers)
        self.attentions = nn.ModuleList(Attention(d) for _ in layers)
        self.to_keys = _linear(d)
        self.to_output = _linear(d)
        self.dropout = nn.Dropout(config.p_drop)

    def encode(self, source: Tokens | Tensor) -> ConvolutionalState:
        """Read the source:  (B, S) -> the state from which decoding starts."""
        if isinstance(source, Tensor):
            source = Tokens.rows(source, pad=self.config.source_pad)
        allowed = source.segments != PADDING_SEGMENT  # (B, S)
        embedded = self._embed(self.source_embedding, source.ids, source.positions)
        x = embedded
        for layer in self.encoder:
            # Padding must look like the space around a row, whatever a layer made of it.
            x = x.masked_fill(~allowed.unsqueeze(-1), 0)
            around = F.pad(x, (0, 0, K // 2, K // 2))
            x = (x + layer(around)) * HALF
        keys = self.to_keys(x)
        values = (keys + embedded) * HALF
        nothing = x.new_zeros(x.size(0), K - 1, x.size(2))
        return ConvolutionalState(keys, values, allowed, 0, (nothing,) * len(self.decoder))

    def decode(
        self, target: Tokens | Tensor, state: ConvolutionalState
    ) -> tuple[Tensor, ConvolutionalState]:
        """Compute the logits (B, T, V) after each token of `target` (B, T), and the next state."""
        ids = target if isinstance(target, Tensor) else target.ids
        end = state.position + ids.size(1)
        positions = torch.arange(state.position, end, device=ids.device).expand_as(ids)
        embedded = self._embed(self.target_embedding, ids, positions)
        x = embedded
        inputs = []
        for layer, attention, before in zip(
            self.decoder, self.attentions, state.layers, strict=True
        ):
            known = torch.cat([before, x], dim=1)  # (B, K - 1 + T, d)
            y = layer(known)
            y = (y + attention(y, embedded, state)) * HALF
            x = (x + y) * HALF
            inputs.append(known[:, 1 - K :])
        logits = F.linear(self.dropout(self.to_output(x)), self.target_embedding.weight)
        following = ConvolutionalState(state.keys, state.values, state.allowed, end, tuple(inputs))
        return logits, following

    def _embed(self, embedding: Embedding, ids: Tensor, positions: Tensor) -> Tensor:
        x = embedding(ids)
        x = (x + sinusoids(positions, x.size(-1)).to(x.dtype)) * SMALL
        return self.dropout(x)


def _linear(d: int) -> nn.Linear:
    """Build a layer that keeps the variance of its input."""
    linear = nn.Linear(d, d)
    nn.init.normal_(linear.weight, std=d**-0.5)
    nn.init.zeros_(linear.bias)
    return linear
