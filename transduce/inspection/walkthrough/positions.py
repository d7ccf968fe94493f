"""What would change if the source stood at other positions, or if the model had none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import SearchConfig
from transduce.model import Mask, State, Tokens, Transformer
from transduce.model.state import LayerCache
from transduce.search.search import search

SHIFTS = (0, 1, 10, 100)  # by how many positions the source is moved
WITHOUT = "none"  # the variant without positions


@dataclass(frozen=True)
class PositionVariants:
    """The source with other positions: the weights of one head of the encoder, and translations."""

    names: list[str]  # the shift, such as "10", or "none" without positions
    weights: Tensor  # (variants, S, S)
    translations: list[list[int]]  # token ids of a greedy search, without the end


@torch.inference_mode()
def position_variants(
    model: Transformer, source: Sequence[int], layer: int, head: int, limit: int
) -> PositionVariants:
    """Encode a source at other positions and without any, and translate what comes out.

    Layer and head of the encoder are counted from 0; `limit` is the most tokens of a translation.
    """
    tokens = Tokens.rows(torch.tensor([source]))
    shifts = [shift for shift in SHIFTS if _has_position(model, len(source) + shift)]
    names = [*map(str, shifts), WITHOUT]
    maps: list[Tensor] = []

    def keep_weights(attention: Any, inputs: tuple[Any, ...]) -> None:
        maps.append(attention.weights(*inputs)[:, head])

    # Encode every variant. The hook reads the weights of the chosen head.
    attention: Any = model.encoder[layer].get_submodule("self_attention")
    handle = attention.register_forward_pre_hook(keep_weights)
    try:
        memories = []
        for shift in shifts:
            moved = replace(tokens, positions=tokens.positions + shift)
            memories.append(model.encode(moved).memory)
        memories.append(_encode_without_positions(model, tokens))
    finally:
        handle.remove()

    # Translate all of them together, one row each.
    rows = tokens.select(torch.zeros(len(names), dtype=torch.long))
    state = State(torch.cat(memories), rows, tuple(LayerCache() for _ in model.decoder))

    def step(last: Tensor, state: State) -> tuple[Tensor, State]:
        logits, state = model.decode(last[:, None], state)
        return F.log_softmax(logits[:, -1], dim=-1), state

    limits = [limit] * len(names)
    found = search(step, state, limits, model.config.pad, SearchConfig(beam_size=1))
    return PositionVariants(names, torch.cat(maps), [list(best[0].ids) for best in found])


def _has_position(model: Transformer, length: int) -> bool:
    """Return whether the model has so many positions; a learned table is limited."""
    return model.config.positions != "learned" or length <= model.config.max_positions


def _encode_without_positions(model: Transformer, source: Tokens) -> Tensor:
    """Compute what `Transformer.encode` computes, with embeddings alone."""
    embedding = model.source_embedding or model.target_embedding
    x = embedding(source.ids)
    mask = Mask(source, source, r=model.config.r)
    for layer in model.encoder:
        x = layer(x, mask)
    return model.encoder_norm(x)
