"""The models of a translator in torch, in float32 on a CPU, whatever engine it translates with."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch

from transduce.engines.ctranslate2 import CTranslate2Engine
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import InputError
from transduce.kernels.accelerate import restore
from transduce.translation.translator import Translator

# Models that were loaded for an inspection, as long as their translators exist.
_loaded: WeakKeyDictionary[Translator, TorchEngine] = WeakKeyDictionary()


def torch_engine(translator: Translator) -> TorchEngine:
    """Return an engine with the translator's models in torch; it is loaded once, if necessary."""
    engine = translator.engine
    if isinstance(engine, TorchEngine) and _is_exact(engine):
        return engine
    if isinstance(engine, CTranslate2Engine):
        return engine.torch_engine
    if translator in _loaded:
        return _loaded[translator]

    # Load the model of a bundle in torch.
    bundle = translator.bundle
    is_ensemble = isinstance(engine, TorchEngine) and len(engine.models) > 1
    if bundle is not None and bundle.own_model is None and not is_ensemble:
        _loaded[translator] = TorchEngine(load_model(bundle), frozen=True)
        return _loaded[translator]

    # An ensemble, or a model in memory, is copied in float32.
    if not isinstance(engine, TorchEngine):
        raise InputError(
            f"the engine {type(engine).__name__} has no model in torch, so its attention cannot be "
            "recorded; use a Translator with a bundle, or with the engine torch"
        )
    with engine.exclusive() as models:
        copied = TorchEngine(*map(_float32_copy, models))
    if bundle is not None:  # the weights of a model in memory may change
        _loaded[translator] = copied
    return copied


def _is_exact(engine: TorchEngine) -> bool:
    return engine.device.type == "cpu" and engine.dtype == torch.float32


def _float32_copy(model: Any) -> Any:
    """Return a copy of a model on the CPU, in float32 and without fused forms."""
    # Packed weights cannot be copied, and the plain forms do not need them.
    left_out = {
        id(module.packed): None for module in model.modules() if "packed" in module.__dict__
    }
    copied = copy.deepcopy(model, left_out)
    restore(copied)
    return copied.to("cpu", torch.float32).eval()
