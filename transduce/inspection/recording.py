"""Recording what a model computes: attention weights and the norms of the residual stream.

The weights are those that the model itself computed, also if a user has overridden `attend`: what
`attend` does to the values is linear in them, so applied to the identity matrix it gives the
weights. A model's outputs are the same to the bit with and without a recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from transduce.errors import InputError
from transduce.inspection.heads import KINDS, Kind, attentions
from transduce.model import Mask

TOLERANCE = 1e-3  # of the heads' output, relative to its largest value


@dataclass
class Recording:
    """What one pass through a model has left, by kind and layer. Every list begins empty."""

    weights: dict[Kind, list[Tensor]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    # The vectors after the embedding and after each layer, (B, T, d_model).
    residuals: dict[str, list[Tensor]] = field(
        default_factory=lambda: {"encoder": [], "decoder": []}
    )
    notices: list[str] = field(default_factory=list)


@contextmanager
def recording(model: Any) -> Iterator[Recording]:
    """Record the passes of a model until the block ends.

    `weights` then has one tensor (B, h, Q, K) for each attention, if the model ran once.
    """
    record = Recording()
    with ExitStack() as undo:
        for kind, modules in attentions(model).items():
            for number, attention in enumerate(modules, start=1):
                observer = _observer(attention, kind, number, record)
                undo.enter_context(replaced(attention, "attend", observer))
        for stack in ("encoder", "decoder"):
            for layer in getattr(model, stack):
                hook = layer.register_forward_hook(_record_residual(record.residuals[stack]))
                undo.callback(hook.remove)
        yield record

    for kind, modules in attentions(model).items():
        if len(record.weights[kind]) != len(modules):
            raise InputError(
                f"{type(modules[0]).__name__} computes attention without its method attend, so the "
                f"weights of {kind} attention cannot be recorded; override attend instead of "
                "forward"
            )


def _observer(attention: Any, kind: Kind, number: int, record: Recording) -> Any:
    """Return a form of an attention's `attend` that also records its weights."""
    attend = attention.attend

    def observed(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        heads: Tensor = attend(q, k, v, mask)
        weights = _weights(attend, q, k, mask)
        record.weights[kind].append(weights)
        error = (weights @ v - heads).abs().max()
        if not error <= TOLERANCE * heads.abs().max():
            record.notices.append(
                f"{kind} layer {number}: {type(attention).__name__}.attend is not a weighted sum "
                "of the values, so its weights show only a part of what it does"
            )
        return heads

    return observed


@contextmanager
def replaced(module: nn.Module, name: str, method: Any) -> Iterator[None]:
    """Give one object another method until the block ends."""
    of_its_own = module.__dict__.get(name)
    setattr(module, name, method)
    try:
        yield
    finally:
        if of_its_own is None:
            delattr(module, name)
        else:
            setattr(module, name, of_its_own)


def _weights(attend: Any, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """Return the weights (B, h, Q, K) with which `attend` adds up values."""
    B, h, K, _ = k.shape
    identity = torch.eye(K, dtype=k.dtype, device=k.device).expand(B, h, K, K)
    return attend(q, k, identity, mask)


def _record_residual(residuals: list[Tensor]) -> Any:
    def hook(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not residuals:
            residuals.append(inputs[0])
        residuals.append(output)

    return hook
