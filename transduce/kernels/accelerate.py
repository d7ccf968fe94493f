"""Decide which parts of a model run as fused kernels. No other module makes this decision.

`accelerate(model)` walks over the modules of a model. A module whose type is exactly a standard one
gets the class of its fused form (`module.__class__ = FusedAttention`, see `fused.py`), which
computes the same formula. Names, weights and `state_dict` stay as they are.

A fused form does not call the `forward` of the modules inside it, so it must never hide a change
that a user made. These keep their own `forward`:

- a subclass of a standard module, and a wrapped or parametrized layer;
- a module with a method that was set on this one object (`attention.attend = f`);
- a module around such a part, or around a part with a hook, if the fused form would skip that part.

Triton is imported only when the device is a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.modules.module as torch_module
from torch import nn

from transduce.config import fits_tiles
from transduce.kernels.cpu import Float32Attention, SparingDropout
from transduce.model.embedding import Embedding
from transduce.model.feed_forward import ACTIVATIONS, FeedForward
from transduce.model.layers import DecoderLayer, EncoderLayer, Residual
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Positions
from transduce.model.transformer import Transformer

STANDARD: set[type[nn.Module]] = {
    Transformer, EncoderLayer, DecoderLayer, MultiHeadAttention, Residual, FeedForward, Embedding,
    Positions, nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Identity, nn.ModuleList,
}  # fmt: skip
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# The parts of a Transformer that its fused `embed` computes in one kernel.
_EMBEDDING_PARTS = (
    "source_embedding",
    "target_embedding",
    "source_positions",
    "target_positions",
    "dropout",
)


class FusedForm(Protocol):
    """A class that takes the place of a standard one."""

    replaces: ClassVar[type[nn.Module]]
    label: ClassVar[str]  # its name in the report


@dataclass(frozen=True)
class Acceleration:
    """The report of `accelerate`: which parts are fused, and why others are not."""

    fused: dict[str, int]  # kind of part -> how many of them are fused
    plain: dict[str, str]  # name of a part -> why it keeps its own forward
    packs: bool  # attention skips masked tiles, so rows of many sentences are cheap

    def __str__(self) -> str:
        counts = [f"{label} x {count}" for label, count in self.fused.items() if count]
        line = f"fused: {', '.join(counts) or 'nothing'}"
        if not self.plain:
            return line

        names_by_reason: dict[str, list[str]] = {}
        for name, reason in self.plain.items():
            names_by_reason.setdefault(reason, []).append(name)
        notes = []
        for reason, names in names_by_reason.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            notes.append(f"{names[0]}{more} ({reason})")
        return f"{line}; with their own forward: {', '.join(notes)}"


def accelerate(
    model: nn.Module, device: torch.device | str | None = None, *, frozen: bool = False
) -> Acceleration:
    """Give the standard parts of a model their fused forms, in place.

    Names, weights and results stay the same, except for rounding. `restore` undoes it. Call it
    again after a change to the parts of the model.

    Args:
        model: A Transformer, or any model that is built from its parts.
        device: The device that the model will run on; by default, the one that it is on.
        frozen: Whether the weights will not change any more. On a CPU they are then copied into a
            layout that is faster to read.
    """
    restore(model)
    if device is None:
        first_weight = next(model.parameters(), None)
        device = "cpu" if first_weight is None else first_weight.device
    device = torch.device(device)

    # Pack the weights of a frozen model on a CPU.
    if device.type == "cpu" and frozen:
        from transduce.kernels.cpu import pack

        excluded = {name for name, module in model.named_modules() if why_not(module)}
        pack(model, excluded)

    # Fuse every part that can be fused, and note the reason for each one that cannot.
    forms = _forms(device.type)
    fused = {form.label: 0 for form in forms.values()}
    plain: dict[str, str] = {}
    explained: set[nn.Module] = set()  # covered by the reason of the module around them
    for name, module in model.named_modules():
        form = forms.get(type(module))
        reason = why_not(module) if form else oddity(module)
        if form and not reason:
            module.__class__ = form
            fused[form.label] += 1
        elif reason and module not in explained:
            plain[name or "the model"] = reason
            if form and name:
                explained.update(module.children())

    # On a GPU, connect consecutive residual connections.
    on_gpu = Residual in forms
    if on_gpu and isinstance(model, Transformer):
        _link_residuals(model)
    return Acceleration(fused, plain, packs=on_gpu and _packs(model))


def restore(model: nn.Module) -> None:
    """Give every part of a model its standard class back."""
    for module in model.modules():
        if type(module) is not standard_type(module):
            module.__class__ = standard_type(module)
            for name in ("from_previous", "to_next"):
                module.__dict__.pop(name, None)


def standard_type(module: nn.Module) -> type[nn.Module]:
    """Return the type of a module; for a fused form, the type that it replaces."""
    return getattr(type(module), "replaces", type(module))


def deviation(model: nn.Module) -> str | None:
    """Describe how a model differs from the standard Transformer, or return None.

    A part that differs may run any Python code at every call. A CUDA graph would not repeat that
    code, so graphs are captured only where this returns None.
    """
    if any(getattr(torch_module, f"_global{hooks}", None) for hooks in _HOOKS):
        return "hooks on all modules"
    for name, module in model.named_modules():
        reason = oddity(module) or why_not(module)
        if reason:
            return f"{name or 'the model'}: {reason}"
    if standard_type(model) is not Transformer:
        return f"its class is {type(model).__name__}"
    return None


class Snapshot:
    """A record of everything that decides how a model runs, to notice changes later.

    That is its modules and their classes, hooks and attributes, and where its weights are in
    memory. Engines check it before every search, so a check is only a few passes over flat lists.
    """

    def __init__(self, model: nn.Module, *, versions: bool = False) -> None:
        """With `versions`, a weight that was written to in place also counts as changed."""
        self._versions = versions

        # The dicts of the modules themselves, not copies: they show later changes.
        self._modules = list(model.modules())
        self._namespaces = [module.__dict__ for module in self._modules]
        self._hooks = [module.__dict__[hooks] for module in self._modules for hooks in _HOOKS]
        self._children = [module._modules for module in self._modules if module._modules]
        self._weights = [module._parameters for module in self._modules if module._parameters]
        self._recorded = self._look()

    def holds(self) -> bool:
        """Whether nothing has changed since the snapshot was taken."""
        return self._look() == self._recorded

    def _look(self) -> tuple[list[Any], ...]:
        weights = [
            weight
            for weight in chain.from_iterable(map(dict.values, self._weights))
            if weight is not None
        ]
        written: list[int] = []
        if self._versions:
            written = [weight._version for weight in weights if not weight.is_inference()]
        return (
            list(map(type, self._modules)),
            list(map(len, self._namespaces)),  # a method set on a module is one more attribute
            list(map(id, filter(None, self._hooks))),  # which modules have any hooks
            list(chain.from_iterable(map(dict.values, self._children))),
            list(map(torch.Tensor.data_ptr, weights)),
            written,
        )


def oddity(module: nn.Module) -> str | None:
    """Describe what is not standard about a module itself, or return None.

    The modules inside it are not looked at.
    """
    if standard_type(module) not in STANDARD:
        return f"its class is {type(module).__name__}"
    if any(getattr(module, hooks) for hooks in _HOOKS):
        return "hooks"
    return _own_method(module)


def why_not(module: nn.Module) -> str | None:
    """Describe why a module cannot have a fused form, or return None.

    The reason is a part that its fused form would skip although it is not standard, a method that
    was set on this one object, or sizes that the kernels do not support. Hooks on the module itself
    do not matter: torch calls them around any form.
    """
    for name, part in _skipped_parts(module).items():
        reason = oddity(part)
        if reason:
            return f"{name}: {reason}"
    return _own_method(module) or _other_shape(module)


def _own_method(module: nn.Module) -> str | None:
    """Describe a method that was set on this one object and hides the one of its class."""
    for name in module.__dict__:
        if callable(getattr(type(module), name, None)):
            return f"{name} of its own"
    return None


def _skipped_parts(module: nn.Module) -> dict[str, nn.Module]:
    """Return the children whose `forward` the fused form of a module does not call."""
    kind = standard_type(module)
    if kind in (MultiHeadAttention, Residual, FeedForward):
        return dict(module.named_children())
    if kind is Transformer:
        children = {name: module._modules.get(name) for name in _EMBEDDING_PARTS}
        return {name: child for name, child in children.items() if child is not None}
    return {}


def _other_shape(module: Any) -> str | None:
    """Describe a shape or a setting for which there is no kernel."""
    kind = standard_type(module)
    if kind is MultiHeadAttention:
        linears = (module.w_q, module.w_k, module.w_v)
        if not _are_linear(*linears, module.w_o):
            return "projections of another kind"
        sizes = [linear.weight.size(0) for linear in linears]
        expected = [module.h * module.d_k, module.h * module.d_k, module.h * module.d_v]
        some_biases_missing = len({linear.bias is None for linear in linears}) > 1
        if sizes != expected or some_biases_missing:
            return "projections of other sizes"

    if kind is Residual and not _is_norm(module.norm):
        return "another norm"

    if kind is FeedForward:
        if module.activation is not ACTIVATIONS[module.kind]:
            return "another network"
        parts = [part for part in (module.w_1, module.w_2, module.w_gate) if part is not None]
        if not _are_linear(*parts) or any(part.bias is None for part in parts):
            return "another network"
    return None


def _are_linear(*modules: nn.Module) -> bool:
    return all(standard_type(module) is nn.Linear for module in modules)


def _is_norm(module: Any) -> bool:
    """Whether a module is a norm with weights: a LayerNorm (with a bias) or an RMSNorm."""
    kind = standard_type(module)
    if kind is nn.LayerNorm:
        return module.weight is not None and module.bias is not None
    return kind is nn.RMSNorm and module.weight is not None


def _forms(device: str) -> dict[type[nn.Module], type[FusedForm]]:
    """Return the fused forms for a kind of device, by the standard types that they replace."""
    forms: list[Any] = []
    if device == "cpu":
        forms = [SparingDropout, Float32Attention]
    if device == "cuda":
        from transduce.kernels import fused  # imports Triton

        forms = [
            fused.FusedTransformer,
            fused.FusedAttention,
            fused.FusedResidual,
            fused.FusedFeedForward,
        ]
    return {form.replaces: form for form in forms}


def _link_residuals(model: Transformer) -> None:
    """Let each residual connection hand over to the next one, and the last to the final norm.

    `fused.Handover` says what they hand over, and why.
    """
    from transduce.kernels.fused import FusedLayerNorm, FusedResidual, FusedRMSNorm, Handover

    for module in model.modules():
        if isinstance(module, FusedResidual):
            module.from_previous = Handover()  # which nobody fills
            module.to_next = None

    for stack, final in ((model.encoder, model.encoder_norm), (model.decoder, model.decoder_norm)):
        links: list[Any] = []  # in the order in which they run
        for layer in stack:
            links += [part for part in layer.children() if isinstance(part, FusedResidual)]

        # With pre-norm, the norm at the end of the stack is the last link.
        pre_norm = bool(links) and links[-1].norm_order == "pre"
        if pre_norm and _is_norm(final) and not _own_method(final):
            is_layer_norm = standard_type(final) is nn.LayerNorm
            final.__class__ = FusedLayerNorm if is_layer_norm else FusedRMSNorm
            links.append(final)

        for previous, following in pairwise(links):
            if previous.norm_order == getattr(following, "norm_order", "pre"):
                next_norm = getattr(following, "norm", following)
                previous.to_next = following.from_previous = Handover(next_norm)


def _packs(model: nn.Module) -> bool:
    """Whether every attention of a Transformer runs in tiles, which skip other sentences."""
    if not isinstance(model, Transformer):
        return False
    layers = [*model.encoder, *model.decoder]
    attentions = [getattr(layer, "self_attention", None) for layer in layers]
    attentions += [getattr(layer, "cross_attention", None) for layer in model.decoder]
    return all(_runs_in_tiles(attention) for attention in attentions)


def _runs_in_tiles(attention: nn.Module | None) -> bool:
    from transduce.kernels.fused import FusedAttention

    return (
        isinstance(attention, FusedAttention)
        and fits_tiles(attention.d_k, attention.d_v)
        and attention.p_drop == 0
        and attention.kernel in ("auto", "varlen")
    )
