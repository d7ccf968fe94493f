"""The embeddings of a baseline's target and source, shared or not as its configuration says."""

from __future__ import annotations

from torch import nn

from transduce.config import ModelConfig
from transduce.model.embedding import Embedding


def build_embeddings(config: ModelConfig) -> tuple[Embedding, Embedding]:
    """Build the embeddings of target and source, which are the same one if all are shared."""
    target = _build(config.vocab_size, config.d_model)
    if config.sharing == "three-way":
        return target, target
    return target, _build(config.source_pad + 1, config.d_model)


def _build(vocab_size: int, d: int) -> Embedding:
    embedding = Embedding(vocab_size, d)
    nn.init.normal_(embedding.weight, std=d**-0.5)
    embedding.weight.data[embedding.pad].zero_()
    return embedding
