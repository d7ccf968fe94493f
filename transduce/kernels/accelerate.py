"""Which parts of a model run by fused kernels. The decision is made here and nowhere else.

A part that is exactly of a standard type gets the class of its fused form, which computes the same
formula. What a user changed keeps its own `forward`: a subclass, a wrapped or parametrized layer, a
part that has a method of its own, and every part around one with a hook, since a fused form passes
over the parts inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.modules.module as torch_module
from torch import nn

from transduce.config import VARLEN_HEADS
from transduce.kernels.cpu import SparingDropout
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


class Form(Protocol):
    """A class that takes the place of a standard one."""

    stands_for: ClassVar[type[nn.Module]]
    label: ClassVar[str]


@dataclass(frozen=True)
class Acceleration:
    """What was decided: how many parts of each kind are fused, and why others are not."""

    fused: dict[str, int]
    plain: dict[str, str]
    packs: bool  # attention skips what is masked, so that rows of many sentences are cheap

    def __str__(self) -> str:
        fused = ", ".join(f"{name} x {count}" for name, count in self.fused.items() if count)
        names: dict[str, list[str]] = {}
        for name, reason in self.plain.items():
            names.setdefault(reason, []).append(name)
        plain = [
            f"{some[0]}{f' and {len(some) - 1} more' if some[1:] else ''} ({reason})"
            for reason, some in names.items()
        ]
        line = f"fused: {fused or 'nothing'}"
        return f"{line}; with their own forward: {', '.join(plain)}" if plain else line


def accelerate(
    model: nn.Module, device: torch.device | str | None = None, *, frozen: bool = False
) -> Acceleration:
    """Give the standard parts of a model their fused forms, for a device or for the one it is on.

    The model is changed in place. Its names, weights and results stay the same, but for rounding;
    `restore` undoes it. After a change of the model's parts, call it again.

    Args:
        model: A Transformer, or any model that is built of its parts.
        device: Where it will run.
        frozen: Whether its weights will not change any more: on a CPU they are then laid out anew.
    """
    restore(model)
    device = torch.device(device or next((weight.device for weight in model.parameters()), "cpu"))
    if device.type == "cpu" and frozen:
        from transduce.kernels.cpu import pack

        pack(model, {name for name, module in model.named_modules() if why_not(module)})
    forms = _forms(device.type)
    fused = dict.fromkeys((form.label for form in forms.values()), 0)
    plain: dict[str, str] = {}
    unfused: set[nn.Module] = set()  # parts of those whose reason tells enough
    for name, module in model.named_modules():
        form = forms.get(type(module))
        reason = why_not(module) if form else oddity(module)
        if form and not reason:
            module.__class__ = form
            fused[form.label] += 1
        elif reason and module not in unfused:
            plain[name or "the model"] = reason
            unfused.update(module.children() if form and name else ())
    if Residual in forms and isinstance(model, Transformer):
        _link(model)
    return Acceleration(fused, plain, Residual in forms and _packs(model))


def restore(model: nn.Module) -> None:
    """Give every part of a model its own class back."""
    for module in model.modules():
        if type(module) is not standard_type(module):
            module.__class__ = standard_type(module)
            for name in ("takes", "gives"):
                module.__dict__.pop(name, None)


def standard_type(module: nn.Module) -> type[nn.Module]:
    """The type of a module, a fused form counting as what it stands for."""
    return getattr(type(module), "stands_for", type(module))


def deviation(model: nn.Module) -> str | None:
    """Say how a model differs from the standard Transformer; None if it does not.

    A part that differs may do anything in Python, at every call: no CUDA graph may be made of it.
    """
    if any(getattr(torch_module, f"_global{hooks}", None) for hooks in _HOOKS):
        return "hooks on all modules"
    for name, module in model.named_modules():
        if reason := oddity(module) or why_not(module):
            return f"{name or 'the model'}: {reason}"
    return None if standard_type(model) is Transformer else f"its class is {type(model).__name__}"


class Snapshot:
    """All that decides how a model runs: its parts, their hooks, and where its weights are.

    It is looked at before every search, so every look is a few passes over flat lists.
    """

    def __init__(self, model: nn.Module, *, versions: bool = False) -> None:
        """With `versions`, a weight that was written to counts as changed."""
        self._modules, self._versions = list(model.modules()), versions
        self._namespaces = [module.__dict__ for module in self._modules]
        self._hooks = [module.__dict__[hooks] for module in self._modules for hooks in _HOOKS]
        self._parts = [module._modules for module in self._modules if module._modules]
        self._weights = [module._parameters for module in self._modules if module._parameters]
        self._seen = self._look()

    def holds(self) -> bool:
        """Whether nothing of it has changed."""
        return self._look() == self._seen

    def _look(self) -> tuple[list[Any], ...]:
        weights = [
            weight
            for weight in chain.from_iterable(map(dict.values, self._weights))
            if weight is not None
        ]
        return (
            list(map(type, self._modules)),
            list(map(len, self._namespaces)),
            list(map(id, filter(None, self._hooks))),
            list(chain.from_iterable(map(dict.values, self._parts))),
            list(map(torch.Tensor.data_ptr, weights)),
            [weight._version for weight in weights if not weight.is_inference()]
            if self._versions
            else [],
        )


def oddity(module: nn.Module) -> str | None:
    """Say what is not standard about a module, parts aside."""
    if standard_type(module) not in STANDARD:
        return f"its class is {type(module).__name__}"
    if any(getattr(module, hooks) for hooks in _HOOKS):
        return "hooks"
    return _own_method(module)


def why_not(module: nn.Module) -> str | None:
    """Say why a module cannot have a fused form: a method of its own, odd parts, other sizes.

    Hooks on the module itself do no harm: they are called around any form.
    """
    for name, part in _passed_over(module).items():
        if reason := oddity(part):
            return f"{name}: {reason}"
    return _own_method(module) or _other_shape(module)


def _own_method(module: nn.Module) -> str | None:
    kind = type(module)
    own = [name for name in module.__dict__ if callable(getattr(kind, name, None))]
    return f"{own[0]} of its own" if own else None


def _passed_over(module: nn.Module) -> dict[str, nn.Module]:
    """The parts whose `forward` a fused form does not call."""
    if standard_type(module) is Transformer:
        names = (
            "source_embedding",
            "target_embedding",
            "source_positions",
            "target_positions",
            "dropout",
        )
        return {name: module._modules[name] for name in names if module._modules.get(name)}  # type: ignore[misc]
    fused = standard_type(module) in (MultiHeadAttention, Residual, FeedForward)
    return dict(module.named_children()) if fused else {}


def _other_shape(module: Any) -> str | None:
    kind = standard_type(module)
    if kind is MultiHeadAttention:
        sizes = [linear.weight.size(0) for linear in (module.w_q, module.w_k, module.w_v)]
        biases = {linear.bias is None for linear in (module.w_q, module.w_k, module.w_v)}
        keys, values = module.h * module.d_k, module.h * module.d_v
        if sizes != [keys, keys, values] or len(biases) > 1:
            return "projections of other sizes"
    if kind is Residual and not _is_norm(module.norm):
        return "another norm"
    if kind is FeedForward:
        linears = [
            linear for linear in (module.w_1, module.w_2, module.w_gate) if linear is not None
        ]
        if module.activation is not ACTIVATIONS[module.kind] or any(
            each.bias is None for each in linears
        ):
            return "another network"
    return None


def _is_norm(module: Any) -> bool:
    layer = standard_type(module) is nn.LayerNorm and module.bias is not None
    return (layer or standard_type(module) is nn.RMSNorm) and module.weight is not None


def _forms(device: str) -> dict[type[nn.Module], type[Form]]:
    """The fused forms on a kind of device, by what they stand for."""
    forms: list[Any] = []
    if device == "cpu":
        forms = [SparingDropout]
    if device == "cuda":
        from transduce.kernels import fused  # and with it Triton

        forms = [
            fused.FusedTransformer,
            fused.FusedAttention,
            fused.FusedResidual,
            fused.FusedFeedForward,
        ]
    return {form.stands_for: form for form in forms}


def _link(model: Transformer) -> None:
    """Let each residual connection hand over to the next, and the last one to the final norm."""
    from transduce.kernels.fused import FusedLayerNorm, FusedResidual, FusedRMSNorm, Handover

    for module in model.modules():
        if isinstance(module, FusedResidual):
            module.takes, module.gives = Handover(), None
    for stack, final in ((model.encoder, model.encoder_norm), (model.decoder, model.decoder_norm)):
        chain: list[Any] = [
            part for layer in stack for part in layer.children() if isinstance(part, FusedResidual)
        ]
        if chain and chain[-1].norm_order == "pre" and _is_norm(final) and not _own_method(final):
            final.__class__ = (
                FusedLayerNorm if standard_type(final) is nn.LayerNorm else FusedRMSNorm
            )
            chain.append(final)
        for before, after in pairwise(chain):
            order = getattr(after, "norm_order", "pre")
            if before.norm_order == order:
                before.gives = after.takes = Handover(getattr(after, "norm", after))


def _packs(model: nn.Module) -> bool:
    """Whether every attention of a Transformer is computed in tiles."""
    from transduce.kernels.fused import FusedAttention

    if not isinstance(model, Transformer):
        return False
    attentions = [
        getattr(layer, "self_attention", None) for layer in (*model.encoder, *model.decoder)
    ]
    attentions += [getattr(layer, "cross_attention", None) for layer in model.decoder]
    return all(
        isinstance(each, FusedAttention)
        and {each.d_k, each.d_v} <= VARLEN_HEADS
        and each.p_drop == 0
        and each.kernel in ("auto", "varlen")
        for each in attentions
    )
