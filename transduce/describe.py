"""What a model is made of and what it costs, before anything is trained: `transduce describe`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from transduce.config import ModelConfig, Recipe
from transduce.errors import ConfigError
from transduce.model import Transformer
from transduce.presets import BASE
from transduce.recipe import differences

SENTENCE = 28  # tokens of an average sentence, for the share of attention in the cost
MIB = 2**20


@dataclass(frozen=True)
class Flops:
    """Floating-point operations per pair of one source and one target token; a multiply-add counts as two."""

    forward: float

    @property
    def training(self) -> float:
        """The backward pass computes two products for each of the forward pass."""
        return 3 * self.forward


def count_parameters(config: ModelConfig) -> int:
    """How many numbers the model learns."""
    with torch.device("meta"):  # layers are alike: one of each is enough to count
        model = Transformer(replace(config, N=1, N_decoder=1))
    further = (config.N - 1) * _size(model.encoder[0]) + (config.decoder_layers - 1) * _size(
        model.decoder[0]
    )
    return _size(model) + further


def count_flops(config: ModelConfig, sentence: int = SENTENCE) -> Flops:
    """Products of the encoder for one source token and of the decoder for one target token, softmax included."""
    heads = config.h * (config.d_k + config.d_v)
    attention = 2 * config.d_model * heads  # w_q, w_k, w_v, w_o
    feed_forward = (3 if config.activation.endswith("glu") else 2) * config.d_model * config.d_ff
    scores = sentence * heads  # QK^T and the weighted sum of V
    encoder = config.N * (attention + scores + feed_forward)
    # The masked half is not needed.
    decoder = config.decoder_layers * (2 * attention + 1.5 * scores + feed_forward)
    return Flops(2.0 * (encoder + decoder + config.d_model * config.vocab_size))


def training_memory(config: ModelConfig, tokens: int, width: int = 2, shards: int = 1) -> int:
    """Bytes for a step of that many source and target tokens, nothing recomputed; the weights are float32 masters, over
    so many shards, and all else has numbers of so many bytes (bf16: 2)."""
    # Weights, gradients and two moments of Adam, float32.
    states = 16 * count_parameters(config) // shards
    # Q, k, v, output, residual, norm.
    per_attention = 3 * config.d_model + 2 * config.h * (config.d_k + config.d_v)
    per_feed_forward = 3 * config.d_model + 2 * config.d_ff
    layers = config.N * (per_attention + per_feed_forward)
    layers += config.decoder_layers * (2 * per_attention + per_feed_forward)
    return states + width * tokens * (layers + 2 * config.vocab_size)  # logits and their gradient


def decoding_memory(
    config: ModelConfig, sentences: int, beam_size: int, length: int = 2 * SENTENCE
) -> int:
    """Bytes to decode that many sentences at once in float32: weights, and keys and values of source and target."""
    cache = config.decoder_layers * 2 * length * config.h * (config.d_k + config.d_v)
    return 4 * (count_parameters(config) + sentences * beam_size * (cache + config.vocab_size))


def describe(recipe: Recipe, *, batch_tokens: int, batch_sentences: int) -> str:
    """The layers as a tree with parameter counts, what differs from the paper's base, FLOPs and memory."""
    for name, value in (("batch_tokens", batch_tokens), ("batch_sentences", batch_sentences)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    config = recipe.model
    with torch.device("meta"):
        model = Transformer(config)
    flops = count_flops(config)
    tokens = recipe.training.tokens_per_step * recipe.training.steps
    lines = [f"Transformer  {_size(model):,} parameters", *_tree(model, "")]
    lines += ["", "Differs from the paper's base in"]
    changes = differences(recipe, BASE)
    lines += [f"  {name} = {mine}  (base: {base})" for name, (mine, base) in changes.items()] or [
        "  nothing"
    ]
    rows = {
        f"FLOPs, source + target token, sentences of {SENTENCE}": f"{flops.forward / 1e6:,.0f} M to translate, "
        f"{flops.training / 1e6:,.0f} M to train",
        "FLOPs of the whole training": f"{flops.training * tokens:.2g}",
        f"Memory to train on {batch_tokens:,} + {batch_tokens:,} tokens": _mib(
            training_memory(config, batch_tokens)
        ),
        f"Memory to decode {batch_sentences} sentences, beam {recipe.search.beam_size}": _mib(
            decoding_memory(config, batch_sentences, recipe.search.beam_size)
        ),
    }
    width = max(map(len, rows))
    return "\n".join([*lines, "", *(f"{name:<{width}}  {value}" for name, value in rows.items())])


def _mib(size: int) -> str:
    return f"about {size / MIB:,.0f} MiB"


def _tree(module: nn.Module, indent: str) -> list[str]:
    """One line for each part that has parameters; the layers of a stack are alike and share their lines."""
    parts = [(name, child, _size(child)) for name, child in module.named_children() if _size(child)]
    lines = []
    for index, (name, child, size) in enumerate(parts):
        last = index == len(parts) - 1
        label = name
        if isinstance(child, nn.ModuleList):
            child = child[0]
            label = f"{name}: {size // _size(child)} layers of {_size(child):,}"
        shapes = [
            f"{part} {'x'.join(map(str, weight.shape))}"
            for part, weight in child.named_parameters(recurse=False)
        ]
        stem = indent + ("└── " if last else "├── ") + "  ".join([label, *shapes])
        lines += [f"{stem:<64} {size:>13,}", *_tree(child, indent + ("    " if last else "│   "))]
    return lines


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
