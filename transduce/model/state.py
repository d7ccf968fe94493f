"""Where decoding stands: a value that is passed to `decode`, returned by it, and reordered by a search."""

from __future__ import annotations

from torch import Tensor

from transduce.model.attention import Mask
from transduce.model.cache import LayerCache
from transduce.model.tokens import Tokens


class State:
    """The source as the encoder read it, and the target so far, in chunks of any size and packing."""

    def __init__(
        self,
        memory: Tensor,
        source: Tokens,
        layers: tuple[LayerCache, ...],
        target: Tokens | None = None,
    ) -> None:
        """`memory` (B, S, d_model) is the encoder's output; `target` are all tokens decoded so far."""
        self.memory, self.source, self.target = memory, source, target
        self.layers = layers  # one for each decoder layer

    def place(self, target: Tokens | Tensor) -> Tokens:
        """Give plain ids (B, T) their places: after what was decoded, one sentence per row."""
        if isinstance(target, Tokens):
            return target
        return Tokens.rows(target, start=0 if self.target is None else self.target.ids.size(1))

    def extended(self, tokens: Tokens) -> State:
        """Make the state after these tokens, whose layers `decode` fills."""
        target = tokens if self.target is None else self.target.then(tokens)
        layers = tuple(layer.fork() for layer in self.layers)
        return State(self.memory, self.source, layers, target)

    def masks(self, tokens: Tokens, r: int | None) -> tuple[Mask, Mask]:
        """Say what the newest tokens of an extended state may attend to: target, and memory."""
        assert self.target is not None
        return Mask(tokens, self.target, causal=True, r=r), Mask(tokens, self.source)

    def select(self, rows: Tensor) -> State:
        """Take these rows (n,) of the batch; a row may come several times or not at all."""
        layers = (
            LayerCache(layer.target.select(rows), layer.memory.select(rows))
            for layer in self.layers
        )
        target = None if self.target is None else self.target.select(rows)
        return State(self.memory[rows], self.source.select(rows), tuple(layers), target)
