"""The parts of a model, its parameters, FLOPs and memory, before training: `transduce describe`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from transduce.config import ModelConfig, Recipe
from transduce.errors import ConfigError
from transduce.model import Transformer
from transduce.model.layers import is_layer_matrix
from transduce.presets import BASE
from transduce.recipe import TEXTS, check_vocabulary, differences, toml_value

SENTENCE = 28  # tokens of an average sentence, which decide the share of attention in the cost
MIB = 2**20
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Flops:
    """Floating-point operations for one source and one target token; a multiply-add is two."""

    forward: float

    @property
    def training(self) -> float:
        """The FLOPs of training: the backward pass has two products for each of the forward."""
        return 3 * self.forward


def count_parameters(config: ModelConfig, *, in_layer_matrices: bool = False) -> int:
    """Return the number of parameters of a model, or only of those in matrices of its layers."""
    # All layers of a stack have the same size, so that one of each is enough to count.
    with torch.device("meta"):
        model = Transformer(replace(config, N=1, N_decoder=1))
    layers = {"encoder": config.N, "decoder": config.decoder_layers}
    return sum(
        layers.get(name.partition(".")[0], 1) * weight.numel()
        for name, weight in model.named_parameters()
        if not in_layer_matrices or is_layer_matrix(name, weight)
    )


def count_flops(config: ModelConfig, sentence: int = SENTENCE) -> Flops:
    """Return the FLOPs of encoding a source token and decoding a target token, with softmax."""
    heads = config.h * (config.d_k + config.d_v)
    attention = 2 * config.d_model * heads  # w_q, w_k, w_v, w_o
    feed_forward = (3 if config.activation.endswith("glu") else 2) * config.d_model * config.d_ff
    scores = sentence * heads  # QK^T and the weighted sum of V
    encoder = config.N * (attention + scores + feed_forward)
    # Masked self-attention needs half of the scores, attention to the source needs all.
    decoder = config.decoder_layers * (2 * attention + 1.5 * scores + feed_forward)
    return Flops(2.0 * (encoder + decoder + config.d_model * config.vocab_size))


def training_memory(recipe: Recipe, tokens: int, width: int = 2, shards: int = 1) -> int:
    """Estimate the bytes of a training step without activation checkpointing.

    Args:
        recipe: The recipe of the model and its optimizer.
        tokens: Source tokens, and target tokens, of the step.
        width: Bytes of a number in activations (2 for bf16); weights are always float32.
        shards: Devices that share the weights and the state of the optimizer.
    """
    # Weights, gradients and the two moments of Adam, and perhaps a moving average of the weights.
    # Muon keeps one momentum of its matrices.
    config = recipe.model
    copies = 5 if recipe.training.ema else 4
    numbers = copies * count_parameters(config)
    if recipe.training.optimizer == "muon":
        numbers -= count_parameters(config, in_layer_matrices=True)
    states = FLOAT32_BYTES * numbers // shards

    # Queries, keys, values, output, residual and norm of each attention.
    per_attention = 3 * config.d_model + 2 * config.h * (config.d_k + config.d_v)
    per_feed_forward = 3 * config.d_model + 2 * config.d_ff
    layers = config.N * (per_attention + per_feed_forward)
    layers += config.decoder_layers * (2 * per_attention + per_feed_forward)

    return states + width * tokens * (layers + 2 * config.vocab_size)  # logits and their gradient


def decoding_memory(
    config: ModelConfig, sentences: int, beam_size: int, length: int = 2 * SENTENCE
) -> int:
    """Return the bytes of weights, cached keys and values, and logits, to decode in float32."""
    # Keys and values of the source and of the target.
    cache = config.decoder_layers * 2 * length * config.h * (config.d_k + config.d_v)
    numbers = count_parameters(config) + sentences * beam_size * (cache + config.vocab_size)
    return FLOAT32_BYTES * numbers


def describe(recipe: Recipe, *, batch_tokens: int, batch_sentences: int) -> str:
    """Return the layers with parameter counts, the differences from base, FLOPs and memory."""
    for name, value in (("batch_tokens", batch_tokens), ("batch_sentences", batch_sentences)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    check_vocabulary(recipe)

    # The tree of layers, of a model whose weights take no memory.
    with torch.device("meta"):
        model = Transformer(recipe.model)
    lines = [f"Transformer  {_size(model):,} parameters", *_tree(model, "")]

    # The settings in which it differs from base.
    lines += ["", "Differs from the paper's base in"]
    changes = differences(recipe, BASE)
    for name in TEXTS:
        changes.pop(name, None)  # base has no text
    for name, (value, base_value) in changes.items():
        lines.append(f"  {name} = {_shown(value)}  (base: {_shown(base_value)})")
    if not changes:
        lines.append("  nothing")

    # What training and translation cost.
    costs = _costs(recipe, batch_tokens, batch_sentences)
    width = max(map(len, costs))
    lines.append("")
    lines += [f"{name:<{width}}  {value}" for name, value in costs.items()]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    """Return the value of a setting as in a recipe."""
    return "none" if value is None else toml_value(value)


def _costs(recipe: Recipe, batch_tokens: int, batch_sentences: int) -> dict[str, str]:
    """Return the FLOPs and the memory of a recipe, by what they are for."""
    flops = count_flops(recipe.model)
    tokens = recipe.training.tokens_per_step * recipe.training.steps
    beam_size = recipe.search.beam_size
    training_bytes = training_memory(recipe, batch_tokens)
    decoding_bytes = decoding_memory(recipe.model, batch_sentences, beam_size)
    return {
        f"FLOPs, source + target token, sentences of {SENTENCE}": (
            f"{flops.forward / 1e6:,.0f} M to translate, {flops.training / 1e6:,.0f} M to train"
        ),
        "FLOPs of the whole training": f"{flops.training * tokens:.2g}",
        f"Memory to train on {batch_tokens:,} + {batch_tokens:,} tokens": _mib(training_bytes),
        f"Memory to decode {batch_sentences} sentences, beam {beam_size}": _mib(decoding_bytes),
    }


def _mib(size: int) -> str:
    return f"about {size / MIB:,.0f} MiB"


def _tree(module: nn.Module, indent: str) -> list[str]:
    """Return a line for each part that has parameters; the equal layers of a stack share theirs."""
    parts = [(name, child, _size(child)) for name, child in module.named_children() if _size(child)]
    lines = []
    for index, (name, child, size) in enumerate(parts):
        last = index == len(parts) - 1
        label = name
        if isinstance(child, nn.ModuleList):
            child = child[0]
            label = f"{name}: {size // _size(child)} layers of {_size(child):,}"
        for part, weight in child.named_parameters(recurse=False):
            label += f"  {part} {'x'.join(map(str, weight.shape))}"
        stem = indent + ("└── " if last else "├── ") + label
        lines.append(f"{stem:<64} {size:>13,}")
        lines += _tree(child, indent + ("    " if last else "│   "))
    return lines


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
