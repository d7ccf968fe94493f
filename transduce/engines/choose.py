"""The choice of an engine: torch runs everything, CTranslate2 is faster on a CPU."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from transduce.config import ModelConfig
from transduce.cores import available_cores
from transduce.errors import ConfigError, ExportError, MissingExtra, require
from transduce.storage.bundle import Bundle

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.conversion import Quantization
    from transduce.engines.torch import Engine

logger = logging.getLogger("transduce")

EngineName = Literal["auto", "torch", "ctranslate2"]
Precision = Literal["auto", "float32", "bf16", "fp16", "int8"]

MOST_WORKERS = 4  # more cores make each batch faster instead


def choose_engine(
    bundles: Sequence[Bundle],
    name: EngineName,
    device: str | None,
    precision: Precision,
    build: Callable[[ModelConfig], Any] | None = None,
    *,
    workers: int | None = None,
) -> Engine:
    """Return the engine of this name, or with "auto" the fastest that can run the bundles.

    `build` makes a user's own model from its config; only torch can run it. `workers` is the number
    of searches that CTranslate2 can run at the same time; they share the cores. By default each
    core of a small machine has one: two threads for one sentence take longer than one.
    """
    if name not in get_args(EngineName):
        expected = ", ".join(get_args(EngineName))
        raise ConfigError(f"engine is {name!r}; expected one of {expected}")
    if precision not in get_args(Precision):
        expected = ", ".join(get_args(Precision))
        raise ConfigError(f"precision is {precision!r}; expected one of {expected}")
    if build is None:
        for bundle in bundles:
            bundle.refuse_own_model()

    is_standard = build is None and not any(bundle.own_tokenizer for bundle in bundles)
    if name == "ctranslate2" and not is_standard:
        raise ConfigError(
            "the engine ctranslate2 cannot run your own model or tokenizer; use the engine torch"
        )
    is_half = precision in ("bf16", "fp16")
    is_single = len(bundles) == 1
    can_run = is_standard and is_single and not is_half
    if name == "ctranslate2":
        return _ctranslate2_engine(bundles, name, device, precision, workers)
    if name == "auto" and can_run and _prefers_ctranslate2(bundles[0], device):
        try:
            return _ctranslate2_engine(bundles, name, device, precision, workers)
        except ExportError as error:
            if precision == "int8":
                raise
            logger.warning("%s; the model runs in torch instead", error)
    return _torch_engine(bundles, device, precision, build)


def _ctranslate2_engine(
    bundles: Sequence[Bundle],
    name: EngineName,
    device: str | None,
    precision: Precision,
    workers: int | None,
) -> Engine:
    from transduce.engines.ctranslate2 import CTranslate2Engine

    if precision in ("bf16", "fp16"):
        raise ConfigError(
            f"precision is {precision}, but the engine ctranslate2 has only int8 and float32; use "
            "the engine torch"
        )
    if len(bundles) > 1:
        raise ConfigError(
            f"{len(bundles)} models are an ensemble, which the engine ctranslate2 cannot run; use "
            "the engine torch"
        )
    quantization: Quantization = "float32" if precision == "float32" else "int8"
    # torch has no int8, so it cannot take over where int8 was requested.
    by_name = name == "ctranslate2" or precision == "int8"
    cores = _cores()
    if workers is None:
        workers = min(cores, MOST_WORKERS) if _is_cpu(device) else 1
    return CTranslate2Engine(
        bundles[0],
        device,
        quantization=quantization,
        threads=max(1, cores // workers),
        workers=workers,
        by_name=by_name,
    )


def _cores() -> int:
    """Return how many cores to use: those available, or fewer if OMP_NUM_THREADS says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = available_cores()
    return min(cores, int(limit)) if re.fullmatch("[1-9][0-9]{0,8}", limit) else cores


def _is_cpu(device: str | None) -> bool:
    """Return whether CTranslate2 runs on a CPU if it is given this device."""
    runtime = require("ctranslate2", extra="ctranslate2")
    return device == "cpu" or (device is None and not runtime.get_cuda_device_count())


def _torch_engine(
    bundles: Sequence[Bundle],
    device: str | None,
    precision: Precision,
    build: Callable[[ModelConfig], Any] | None,
) -> Engine:
    from transduce.engines.torch import DTYPES, TorchEngine, load_model, resolve_device

    if precision == "int8":
        raise ConfigError(
            "precision is int8, which the engine torch does not have; use the engine ctranslate2, "
            "or float32 or bf16"
        )
    torch_device = resolve_device(device)
    if precision == "auto":
        precision = "bf16" if torch_device.type == "cuda" else "float32"
    models = [load_model(bundle, torch_device, DTYPES[precision], build) for bundle in bundles]
    return TorchEngine(*models, device=torch_device, frozen=True)


def _prefers_ctranslate2(bundle: Bundle, device: str | None) -> bool:
    """Return whether to run on a CPU, with CTranslate2 installed and able to run the model."""
    from transduce.engines.conversion import refusal

    try:
        on_cpu = _is_cpu(device)
    except MissingExtra:
        return False
    return on_cpu and refusal(bundle.recipe.model) is None
