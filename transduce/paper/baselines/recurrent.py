"""A recurrent encoder-decoder with attention: stacked LSTMs, after GNMT (Wu et al., 2016).

The encoder's first layer reads in both directions; layers above the second have residual
connections. The decoder's first layer asks the encoder's output by additive attention, as in
Bahdanau et al. (2015), and what it finds is an input of all layers above. No layer's input depends
on a later layer, so in training each layer runs over the whole target at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.tokens import PADDING_SEGMENT, Tokens
from transduce.paper.baselines.embeddings import build_embeddings

Memory = tuple[Tensor, Tensor]  # hidden state and cell of an LSTM, each (1, B, d)


class Lstm(nn.Module):
    """One LSTM layer whose weights are plain parameters, so that training may round them."""

    def __init__(self, inputs: int, d: int) -> None:
        super().__init__()
        self.d = d
        self.w = nn.Parameter(torch.empty(4 * d, inputs))
        self.u = nn.Parameter(torch.empty(4 * d, d))
        self.b = nn.Parameter(torch.zeros(4 * d))
        for weight in (self.w, self.u):
            nn.init.uniform_(weight, -0.04, 0.04)  # as in GNMT

    def forward(self, x: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """(B, T, inputs) -> (B, T, d), and what the layer remembers."""
        zeros = x.new_zeros(1, x.size(0), self.d)
        weights = [self.w, self.u, self.b, torch.zeros_like(self.b)]
        start = memory or (zeros, zeros)
        y, h, c = torch.lstm(x, start, weights, True, 1, 0.0, self.training, False, True)
        return y, (h, c)


class Attention(nn.Module):
    """Additive attention: the weights are softmax(v . tanh(W_q query + W_k key))."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.w_q = nn.Linear(d, d)
        self.w_k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        """(B, T, d), projected keys (B, S, d), (B, S, d), (B, S) -> (B, T, d)."""
        sums = self.w_q(queries).unsqueeze(2) + keys.unsqueeze(1)  # (B, T, S, d)
        scores = self.v(sums.tanh()).squeeze(-1)  # (B, T, S)
        scores = scores.masked_fill(~allowed.unsqueeze(1), torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1) @ values


@dataclass(frozen=True)
class RecurrentState:
    """The encoded source, and what each decoder layer remembers of the target so far."""

    source: Tensor  # (B, S, d)
    keys: Tensor  # (B, S, d): the source as attention compares it
    allowed: Tensor  # (B, S): which positions are no padding
    layers: tuple[Memory | None, ...]

    def select(self, rows: Tensor) -> RecurrentState:
        """Take these rows (n,) of the batch; a row may come several times or not at all."""
        layers = tuple(_select(memory, rows) for memory in self.layers)
        return RecurrentState(self.source[rows], self.keys[rows], self.allowed[rows], layers)


def _select(memory: Memory | None, rows: Tensor) -> Memory | None:
    if memory is None:
        return None
    return memory[0][:, rows], memory[1][:, rows]


class RecurrentModel(nn.Module):
    """A model like `Transformer`, with N LSTM layers of d_model units on each side."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        d = config.d_model
        self.target_embedding, self.source_embedding = build_embeddings(config)

        # The first layer of the encoder has two halves, one for each direction.
        self.forwards = Lstm(d, d // 2)
        self.backwards = Lstm(d, d - d // 2)
        self.encoder = nn.ModuleList(Lstm(d, d) for _ in range(config.N - 1))
        self.attention = Attention(d)
        self.decoder = nn.ModuleList([Lstm(d, d)])
        self.decoder.extend(Lstm(2 * d, d) for _ in range(config.decoder_layers - 1))
        self.to_output = nn.Linear(2 * d, d)
        self.dropout = nn.Dropout(config.p_drop)

    def encode(self, source: Tokens | Tensor) -> RecurrentState:
        """Read the source:  (B, S) -> the state from which decoding starts."""
        if isinstance(source, Tensor):
            source = Tokens.rows(source, pad=self.config.source_pad)
        allowed = source.segments != PADDING_SEGMENT  # (B, S)
        x = self.dropout(self.source_embedding(source.ids))

        # Both directions. Rows are turned around without their padding, which stays at the end.
        order = _reversed_order(allowed)
        later, _ = self.backwards(_reorder(x, order))
        earlier, _ = self.forwards(x)
        x = torch.cat([earlier, _reorder(later, order)], dim=-1)
        for layer in self.encoder:
            x = x + layer(self.dropout(x))[0]
        layers: tuple[Memory | None, ...] = (None,) * len(self.decoder)
        return RecurrentState(x, self.attention.w_k(x), allowed, layers)

    def decode(
        self, target: Tokens | Tensor, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """Compute the logits (B, T, V) after each token of `target` (B, T), and the next state."""
        ids = target if isinstance(target, Tensor) else target.ids
        x = self.dropout(self.target_embedding(ids))
        x, memory = self.decoder[0](x, state.layers[0])
        found = self.attention(x, state.keys, state.source, state.allowed)  # (B, T, d)
        memories = [memory]
        for layer, before in zip(self.decoder[1:], state.layers[1:], strict=True):
            y, memory = layer(self.dropout(torch.cat([x, found], dim=-1)), before)
            x = x + y
            memories.append(memory)
        hidden = self.to_output(self.dropout(torch.cat([x, found], dim=-1)))
        logits = F.linear(hidden, self.target_embedding.weight)
        return logits, RecurrentState(state.source, state.keys, state.allowed, tuple(memories))


def _reversed_order(allowed: Tensor) -> Tensor:
    """Return the positions of each row from last to first, padding where it was:  (B, S)."""
    positions = torch.arange(allowed.size(1), device=allowed.device)
    lengths = allowed.sum(dim=1, keepdim=True)
    return torch.where(positions < lengths, lengths - 1 - positions, positions)


def _reorder(x: Tensor, order: Tensor) -> Tensor:
    """Take the positions of each row in another order:  (B, S, d), (B, S) -> (B, S, d)."""
    return x.gather(1, order.unsqueeze(-1).expand_as(x))
