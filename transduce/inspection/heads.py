"""Attention heads by name, such as cross.6.2, and models in which some are switched off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor, nn

from transduce.errors import InputError

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Head:
    """One head. Layers and heads are counted from 1, as in the paper."""

    kind: Kind  # self-attention of the encoder or decoder, or attention to the encoder's output
    layer: int
    index: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.index}"


def attentions(model: Any) -> dict[Kind, list[Any]]:
    """Return the attention modules of a model by kind, from the first layer to the last.

    A user's own model is refused unless its layers are in `encoder` and `decoder` and have their
    attention in `self_attention` and `cross_attention`, as those of `Transformer` do.
    """
    places: dict[Kind, tuple[str, str]] = {
        "encoder": ("encoder", "self_attention"),
        "decoder": ("decoder", "self_attention"),
        "cross": ("decoder", "cross_attention"),
    }

    # Find the layers of each stack, and in each layer the attention.
    found: dict[Kind, list[Any]] = {}
    for kind, (stack, name) in places.items():
        layers = getattr(model, stack, None)
        if not isinstance(layers, nn.ModuleList) or not len(layers):
            raise InputError(
                f"the model {type(model).__name__} has no list of layers named {stack}; expected "
                "layers as those of Transformer, whose attention can be recorded"
            )
        found[kind] = [getattr(layer, name, None) for layer in layers]
        for number, attention in enumerate(found[kind], start=1):
            missing = [part for part in ("h", "attend", "w_o") if not hasattr(attention, part)]
            if missing:
                raise InputError(
                    f"layer {number} of {stack} has no {name} with {missing[0]} "
                    f"({type(attention).__name__}); expected a MultiHeadAttention or a subclass, "
                    "whose heads can be recorded and switched off"
                )
    return found


def all_heads(model: Any) -> list[Head]:
    """Return all heads of a model: encoder, decoder, then cross-attention."""
    heads = []
    for kind, modules in attentions(model).items():
        for layer, attention in enumerate(modules, start=1):
            heads += [Head(kind, layer, index) for index in range(1, attention.h + 1)]
    return heads


def find_heads(model: Any, names: Iterable[str | Head]) -> tuple[Head, ...]:
    """Return the heads with these names, without repetition."""
    if isinstance(names, str):
        raise InputError(f"heads is {names!r}; expected a list of names, such as [{names!r}]")
    known = {str(head): head for head in all_heads(model)}
    found: dict[str, Head] = {}
    for name in map(str, names):
        if name not in known:
            counts = {kind: len(modules) for kind, modules in attentions(model).items()}
            layers = ", ".join(f"{kind} layers 1 to {count}" for kind, count in counts.items())
            raise InputError(
                f"the head {name!r} does not exist; expected KIND.LAYER.HEAD, such as cross.1.1: "
                f"this model has {layers}, each with heads 1 to {attentions(model)['cross'][0].h}"
            )
        found[name] = known[name]
    return tuple(found.values())


@contextmanager
def switched_off(model: Any, heads: Iterable[Head]) -> Iterator[None]:
    """Switch heads off: their part of the input of W^O (§3.2.2) is zero until the block ends."""
    modules = attentions(model)

    # One hook for each attention module, whichever of its heads are chosen.
    by_attention: dict[Any, list[int]] = {}
    for head in heads:
        attention = modules[head.kind][head.layer - 1]
        by_attention.setdefault(attention, []).append(head.index - 1)
    with ExitStack() as hooks:
        for attention, indices in by_attention.items():
            hook = attention.w_o.register_forward_pre_hook(_zero(attention.h, indices))
            hooks.callback(hook.remove)
        yield


def _zero(h: int, indices: list[int]) -> Any:
    """Return a hook that zeroes the outputs of some of h heads."""

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        joined, *rest = inputs
        heads = joined.unflatten(-1, (h, -1)).clone()  # (B, Q, h, d_v)
        heads[..., indices, :] = 0
        return heads.flatten(-2), *rest

    return hook
