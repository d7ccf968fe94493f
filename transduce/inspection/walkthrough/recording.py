"""Record by hooks what the model computes for one translation, in one layer of each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transduce.model import Transformer
from transduce.model.attention import attention_weights


@dataclass(frozen=True)
class Call:
    """One call of a module: what went in, by position, and what came out."""

    inputs: tuple[Any, ...]
    output: Tensor


@dataclass(frozen=True)
class AttentionNumbers:
    """One attention of one sentence, in all heads."""

    q: Tensor  # (h, Q, d_k)
    k: Tensor  # (h, K, d_k)
    v: Tensor  # (h, K, d_v)
    allowed: Tensor  # (Q, K), True where a query may attend to a key
    weights: Tensor  # (h, Q, K)
    output: Tensor  # (Q, d_model)

    @property
    def heads(self) -> Tensor:
        """The results of the heads before they are joined, (h, Q, d_v)."""
        return self.weights @ self.v


@dataclass(frozen=True)
class Recording:
    """The first call of each module that the walkthrough shows, and the logits (T, V)."""

    model: Transformer
    modules: dict[str, Any]
    calls: dict[str, Call]
    logits: Tensor

    def attention(self, name: str) -> AttentionNumbers:
        """Return the numbers of an attention, computed by its own methods from what went in."""
        module = self.modules[name]
        call = self.calls[name]
        queries_from, keys_from, mask = call.inputs[:3]
        rotation = call.inputs[3] if len(call.inputs) > 3 else None
        q, k, v = module.queries_keys_values(queries_from, keys_from, rotation)
        weights = attention_weights(q, k, mask.allowed)
        allowed = torch.ones(q.size(2), k.size(2), dtype=torch.bool)
        if mask.allowed is not None:
            allowed = mask.allowed[0, 0].expand_as(allowed)
        return AttentionNumbers(q[0], k[0], v[0], allowed, weights[0], call.output[0])


@torch.inference_mode()
def record(
    model: Transformer, source: Sequence[int], target: Sequence[int], layers: tuple[int, int]
) -> Recording:
    """Run the model over a source and its translation; both end with the end of the sentence.

    `layers` are the layers of encoder and decoder that are shown, from 0. The hooks read only, and
    are removed at the end.
    """
    modules = _shown_modules(model, layers)
    calls: dict[str, Call] = {}
    handles = []
    for name, module in modules.items():

        def keep(_: nn.Module, inputs: tuple[Any, ...], output: Tensor, name: str = name) -> None:
            # The first call of a shared embedding is that of the source.
            calls.setdefault(name, Call(inputs, output))

        handles.append(module.register_forward_hook(keep))
    shifted = [model.config.pad, *target[:-1]]
    try:
        logits = model(torch.tensor([source]), torch.tensor([shifted]))
    finally:
        for handle in handles:
            handle.remove()
    return Recording(model, modules, calls, logits[0])


def _shown_modules(model: Transformer, layers: tuple[int, int]) -> dict[str, Any]:
    """Return the modules that the walkthrough shows, by name."""
    encoder_layer: Any = model.encoder[layers[0]]
    decoder_layer: Any = model.decoder[layers[1]]
    return {
        "embedding": model.source_embedding or model.target_embedding,
        "positions": model.source_positions,
        "self_attention": encoder_layer.self_attention,
        "residual": encoder_layer.self_attention_residual,
        "norm": encoder_layer.self_attention_residual.norm,
        "feed_forward": encoder_layer.feed_forward,
        "w_2": encoder_layer.feed_forward.w_2,
        "masked_attention": decoder_layer.self_attention,
        "cross_attention": decoder_layer.cross_attention,
    }
