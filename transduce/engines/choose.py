"""Which engine runs a bundle: torch, the only one that does everything, or CTranslate2, the faster one on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from transduce.config import ModelConfig
from transduce.errors import ConfigError, MissingExtra, require
from transduce.storage.bundle import Bundle

if TYPE_CHECKING:  # torch is waited for only where torch runs
    from transduce.engines.conversion import Quantization
    from transduce.engines.torch import Engine

EngineName = Literal["auto", "torch", "ctranslate2"]
Precision = Literal["auto", "float32", "bf16", "fp16", "int8"]


def choose_engine(
    bundles: Sequence[Bundle],
    name: EngineName,
    device: str | None,
    precision: Precision,
    build: Callable[[ModelConfig], Any] | None = None,
) -> Engine:
    """The engine of that name, or the fastest that is there; `build` makes a model of one's own, for torch alone."""
    if name not in get_args(EngineName) or precision not in get_args(Precision):
        names, numbers = (", ".join(get_args(each)) for each in (EngineName, Precision))
        raise ConfigError(
            f"engine is {name!r} and precision {precision!r}; expected one of {names}; one of {numbers}"
        )
    half, alone = precision in ("bf16", "fp16"), len(bundles) == 1
    if build is None:
        for bundle in bundles:
            bundle.refuse_own_model()
    # Other runtimes can carry it.
    elsewhere = build is None and not any(bundle.own_tokenizer for bundle in bundles)
    plain = alone and not half and elsewhere
    if name == "ctranslate2" and not elsewhere:
        raise ConfigError(
            "the engine ctranslate2 runs no model and no tokenizer of your own; use torch"
        )
    if name == "ctranslate2" or (
        name == "auto" and plain and _prefers_ctranslate2(bundles[0], device)
    ):
        from transduce.engines.ctranslate2 import CTranslate2Engine

        if half:
            raise ConfigError(
                f"precision is {precision}, but the engine ctranslate2 has int8 and float32; use torch"
            )
        if not alone:
            raise ConfigError(
                f"{len(bundles)} models are an ensemble, which only the engine torch runs; use torch"
            )
        quantization: Quantization = "float32" if precision == "float32" else "int8"
        by_name = name == "ctranslate2" or precision == "int8"  # torch has no int8
        return CTranslate2Engine(bundles[0], device, quantization=quantization, by_name=by_name)
    from transduce.engines.torch import DTYPES, TorchEngine, load_model, resolve_device

    if precision == "int8":
        raise ConfigError(
            "precision is int8, which the engine torch has not; use ctranslate2, or float32 or bf16"
        )
    where = resolve_device(device)
    numbers = precision if precision != "auto" else "bf16" if where.type == "cuda" else "float32"
    models = [load_model(bundle, where, DTYPES[numbers], build) for bundle in bundles]
    return TorchEngine(*models, device=where, frozen=True)


def _prefers_ctranslate2(bundle: Bundle, device: str | None) -> bool:
    """On a CPU, where it is installed and can carry the model. Torch need not be waited for to find that out."""
    from transduce.engines.conversion import refusal

    try:
        runtime = require("ctranslate2", extra="ctranslate2")
    except MissingExtra:
        return False
    on_cpu = device == "cpu" or (device is None and not runtime.get_cuda_device_count())
    return on_cpu and refusal(bundle.recipe.model) is None
