"""Conversion of a bundle to a CTranslate2 model: the same weights under that runtime's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from transduce.config import ModelConfig
from transduce.data.tokenizer import Tokenizer
from transduce.errors import ExportError, require
from transduce.storage.bundle import SHORTLIST, Bundle

Quantization = Literal["float32", "int8"]
# Settings that do not change what a trained model computes.
TRAINING_ONLY = ("p_drop", "p_drop_attention", "p_drop_activation", "kernel")
VMAP = "vmap.txt"  # the vocabulary map, under the name that CTranslate2 expects
POSITIONS = 1024  # the smallest number of rows in the position table
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "swish": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}


# The settings of a model that CTranslate2 supports: these with any value, ...
_ANY_VALUE = {
    *("vocab_size", "source_vocab_size", "N", "N_decoder", "d_model", "d_ff", "h", "d_k", "d_v"),
    *("norm_eps", "max_positions", "attention_bias", "output_bias", "sharing"),
    *TRAINING_ONLY,
}
# ... and these with some. Any other setting must have its default value.
_VALUES = {
    "norm_order": ("post", "pre"),
    "norm": ("layer", "rms"),
    "activation": tuple(_ACTIVATIONS),
    "positions": ("sinusoidal", "learned", "rotary", "none"),
}


def refusal(config: ModelConfig) -> str | None:
    """Return why CTranslate2 cannot run a model, or None if it can."""
    return unsupported(config, "CTranslate2", _ANY_VALUE, _VALUES)


def unsupported(
    config: ModelConfig,
    runtime: str,
    any_value: Set[str],
    values: Mapping[str, Sequence[Any]],
) -> str | None:
    """Return the setting of a model that a runtime does not support, or None.

    What a runtime supports is listed. So a setting that is added to the model later is refused
    unless it has its default value, until somebody adds it to the list. No runtime has heads of
    another size than d_model / h.
    """
    for field in fields(config):
        found = getattr(config, field.name)
        supported = values.get(field.name, (field.default,))
        if field.name not in any_value and found not in supported:
            names = [str(value) for value in supported if value is not None]
            expected = ", ".join(names) or "models without it"
            return f"model.{field.name} is {found}; {runtime} supports only {expected}"
    if not config.d_k == config.d_v == config.d_model / config.h:
        return (
            f"model.d_k is {config.d_k} and model.d_v is {config.d_v}; {runtime} needs both to be "
            "d_model / h"
        )
    return None


def positions(bundle: Bundle) -> int:
    """Return the largest sequence length of the converted model."""
    config = bundle.recipe.model
    if config.positions == "learned":
        return config.max_positions
    return max(POSITIONS, bundle.recipe.data.max_tokens)


def convert(
    bundle: Bundle, out: Path, quantization: Quantization, *, adds_end: bool = False
) -> None:
    """Write the CTranslate2 model into an existing folder.

    With `adds_end`, the model adds the end of the sentence to its sources itself. A shortlist is
    written too; CTranslate2 uses it in the calls that ask for it.
    """
    reason = refusal(bundle.recipe.model)
    if reason:
        raise ExportError(reason)
    specs = require("ctranslate2.specs", extra="ctranslate2")
    config = bundle.recipe.model
    spec = _specification(specs, config)
    weights = {name: weight.numpy() for name, weight in bundle.weights().items()}
    _fill(spec, config, weights, positions(bundle))

    # Vocabularies and special tokens.
    source, target = Tokenizer.pair(bundle.tokenizer_files)
    spec.register_source_vocabulary(source.pieces(range(source.vocab_size)))
    spec.register_target_vocabulary(target.pieces(range(target.vocab_size)))
    end, unknown, pad = target.pieces([0, 1, target.pad])
    spec.config.eos_token = end
    spec.config.unk_token = unknown
    spec.config.bos_token = end
    # A target starts with padding, which is the zero vector in many models.
    spec.config.decoder_start_token = end if spec.decoder.start_from_zero_embedding else pad
    spec.config.add_source_eos = adds_end
    spec.config.layer_norm_epsilon = config.norm_eps

    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(out))
    if bundle.shortlist:
        (out / VMAP).write_text(_vocabulary_map(bundle, target), encoding="utf-8", newline="\n")


def _vocabulary_map(bundle: Bundle, target: Tokenizer) -> str:
    """Return CTranslate2's vocabulary map: the tokens of the shortlist, whatever the source is.

    A line is source tokens, a tab, and the target tokens that they allow. Without source tokens,
    the target tokens are always allowed.
    """
    unknown = {*bundle.shortlist} - {*target.pieces(range(target.vocab_size))}
    if unknown:
        raise ExportError(
            f"{bundle.path / SHORTLIST} has {min(unknown)!r}, which is no token of the model; make "
            "it again with: transduce compress --shortlist"
        )
    return f"\t{' '.join(bundle.shortlist)}\n"


def _specification(specs: Any, config: ModelConfig) -> Any:
    """Return a model of the right shape without weights."""
    shape: dict[str, Any] = {
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation.endswith("glu"),
        "pre_norm": config.norm_order == "pre",
        "rms_norm": config.norm == "rms",
    }
    if config.positions == "rotary":
        shape |= {"rotary_dim": config.d_k, "rotary_interleave": False}
    encoder = specs.TransformerEncoderSpec(config.N, config.h, **shape)
    decoder = specs.TransformerDecoderSpec(config.decoder_layers, config.h, **shape)
    return specs.TransformerSpec(encoder, decoder)


def _fill(spec: Any, config: ModelConfig, weights: dict[str, Any], rows: int) -> None:
    """Set all weights of the specification."""
    import numpy as np

    # Embeddings and the output projection, which share the target's matrix by default (§3.4).
    target = weights["target_embedding.weight"]
    spec.encoder.embeddings[0].weight = weights.get("source_embedding.weight", target)
    spec.decoder.embeddings.weight = target
    spec.decoder.start_from_zero_embedding = not target[-1].any()
    spec.decoder.projection.weight = weights.get("output.weight", target)
    bias = np.array(weights.get("output_bias", np.zeros(config.vocab_size)), dtype=np.float32)
    bias[-1] = -1e9  # padding is never generated: the softmax is over all other tokens
    spec.decoder.projection.bias = bias

    # Positions.
    for side, stack in (("source", spec.encoder), ("target", spec.decoder)):
        if hasattr(stack, "position_encodings"):
            table = weights.get(f"{side}_positions.table")
            stack.position_encodings.encodings = _table(config, rows) if table is None else table

    # Layers.
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        if config.norm_order == "pre":
            _norm(stack.layer_norm, weights, f"{name}_norm")
        for index, layer in enumerate(stack.layer):
            _fill_layer(layer, config, weights, f"{name}.{index}")


def _fill_layer(layer: Any, config: ModelConfig, weights: dict[str, Any], name: str) -> None:
    _attention(layer.self_attention, weights, f"{name}.self_attention", ("q", "k", "v"), ("o",))
    if name.startswith("decoder"):
        cross_attention = f"{name}.cross_attention"
        _attention(layer.attention, weights, cross_attention, ("q",), ("k", "v"), ("o",))
    _norm(layer.ffn.layer_norm, weights, f"{name}.feed_forward_residual.norm")
    _linear(layer.ffn.linear_0, weights, f"{name}.feed_forward.w_1")
    _linear(layer.ffn.linear_1, weights, f"{name}.feed_forward.w_2")
    if config.activation.endswith("glu"):
        _linear(layer.ffn.linear_0_noact, weights, f"{name}.feed_forward.w_gate")


def _table(config: ModelConfig, rows: int) -> Any:
    """Return the sinusoids of §3.5, since CTranslate2's differ; zeros for other positions."""
    import numpy as np
    import torch

    from transduce.model.positions import sinusoids

    if config.positions != "sinusoidal":
        return np.zeros((rows, config.d_model), dtype=np.float32)
    return sinusoids(torch.arange(rows)[None], config.d_model)[0].numpy()


def _attention(spec: Any, weights: dict[str, Any], name: str, *groups: tuple[str, ...]) -> None:
    """Set attention weights. Each group of projections is stored in one matrix."""
    _norm(spec.layer_norm, weights, f"{name}_residual.norm")
    for linear, letters in zip(spec.linear, groups, strict=True):
        _linear(linear, weights, *(f"{name}.w_{letter}" for letter in letters))


def _linear(spec: Any, weights: dict[str, Any], *names: str) -> None:
    import numpy as np

    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" in weights:
        spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _norm(spec: Any, weights: dict[str, Any], name: str) -> None:
    spec.gamma = weights[f"{name}.weight"]
    if f"{name}.bias" in weights:
        spec.beta = weights[f"{name}.bias"]
