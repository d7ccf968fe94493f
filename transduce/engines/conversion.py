"""A bundle as a CTranslate2 model: the same numbers under that runtime's names, with what it cannot carry refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from transduce.config import ModelConfig
from transduce.data.tokenizer import Tokenizer
from transduce.errors import ExportError, require
from transduce.storage.bundle import Bundle

Quantization = Literal["float32", "int8"]
POSITIONS = 1024  # rows of the position table, at least
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "swish": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}


def refusal(config: ModelConfig) -> str | None:
    """Why CTranslate2 cannot carry a model, or None where it can."""
    if config.r is not None:
        return (
            f"model.r is {config.r}; CTranslate2 has no attention to a neighbourhood on both sides"
        )
    if not config.d_k == config.d_v == config.d_model / config.h:
        return f"model.d_k is {config.d_k} and model.d_v {config.d_v}; CTranslate2 needs both to be d_model / h"
    return None


def positions(bundle: Bundle) -> int:
    """How many tokens the converted model can place."""
    config = bundle.recipe.model
    return (
        config.max_positions
        if config.positions == "learned"
        else max(POSITIONS, bundle.recipe.data.max_tokens)
    )


def convert(
    bundle: Bundle, out: Path, quantization: Quantization, *, adds_end: bool = False
) -> None:
    """Write the model into an existing folder; with `adds_end`, one that ends sources itself."""
    if reason := refusal(bundle.recipe.model):
        raise ExportError(reason)
    specs = require("ctranslate2.specs", extra="ctranslate2")
    config = bundle.recipe.model
    norms: dict[str, Any] = {
        "pre_norm": config.norm_order == "pre",
        "rms_norm": config.norm == "rms",
    }
    activation = getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation])
    shape: dict[str, Any] = {
        "activation": activation,
        "ffn_glu": config.activation.endswith("glu"),
        **norms,
    }
    if config.positions == "rotary":
        shape |= {"rotary_dim": config.d_k, "rotary_interleave": False}
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.N, config.h, **shape),
        specs.TransformerDecoderSpec(config.decoder_layers, config.h, **shape),
    )
    _fill(
        spec,
        config,
        {name: weight.numpy() for name, weight in bundle.weights().items()},
        positions(bundle),
    )
    source, target = Tokenizer.pair(bundle.tokenizer_files)
    spec.register_source_vocabulary(source.pieces(range(source.vocab_size)))
    spec.register_target_vocabulary(target.pieces(range(target.vocab_size)))
    end, unknown, pad = target.pieces([0, 1, target.pad])
    spec.config.eos_token, spec.config.unk_token, spec.config.bos_token = end, unknown, end
    # Padding starts a target, as the zero vector; only an imported model may have learnt another.
    spec.config.decoder_start_token = end if spec.decoder.start_from_zero_embedding else pad
    spec.config.add_source_eos = adds_end
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(out))


def _fill(spec: Any, config: ModelConfig, weights: dict[str, Any], rows: int) -> None:
    import numpy as np

    target = weights["target_embedding.weight"]
    spec.encoder.embeddings[0].weight = weights.get("source_embedding.weight", target)
    spec.decoder.embeddings.weight = target
    spec.decoder.start_from_zero_embedding = not target[-1].any()
    spec.decoder.projection.weight = weights.get("output.weight", target)
    # Padding is never said: softmax is over the other classes.
    bias = np.array(weights.get("output_bias", np.zeros(config.vocab_size)), dtype=np.float32)
    bias[-1] = -1e9
    spec.decoder.projection.bias = bias
    for side, stack in (("source", spec.encoder), ("target", spec.decoder)):
        if hasattr(stack, "position_encodings"):
            table = weights.get(f"{side}_positions.table")
            stack.position_encodings.encodings = _table(config, rows) if table is None else table
    for room, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        if config.norm_order == "pre":
            _norm(stack.layer_norm, weights, f"{room}_norm")
        for index, layer in enumerate(stack.layer):
            _attention(
                layer.self_attention,
                weights,
                f"{room}.{index}.self_attention",
                ("q", "k", "v"),
                ("o",),
            )
            if room == "decoder":
                _attention(
                    layer.attention,
                    weights,
                    f"{room}.{index}.cross_attention",
                    ("q",),
                    ("k", "v"),
                    ("o",),
                )
            _norm(layer.ffn.layer_norm, weights, f"{room}.{index}.feed_forward_residual.norm")
            inner = f"{room}.{index}.feed_forward"
            _linear(layer.ffn.linear_0, weights, f"{inner}.w_1")
            _linear(layer.ffn.linear_1, weights, f"{inner}.w_2")
            if config.activation.endswith("glu"):
                _linear(layer.ffn.linear_0_noact, weights, f"{inner}.w_gate")


def _table(config: ModelConfig, rows: int) -> Any:
    """The paper's sinusoids (§3.5), stored because CTranslate2's own are others; zeros for a model without."""
    import numpy as np
    import torch

    from transduce.model.positions import sinusoids

    if config.positions != "sinusoidal":
        return np.zeros((rows, config.d_model), dtype=np.float32)
    return sinusoids(torch.arange(rows)[None], config.d_model)[0].numpy()


def _attention(spec: Any, weights: dict[str, Any], name: str, *groups: tuple[str, ...]) -> None:
    """Each linear holds the rows of its projections one after the other."""
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
