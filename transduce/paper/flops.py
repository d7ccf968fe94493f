"""Floating-point operations as torch counts them, and as the paper estimates them for Table 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transduce.config import ModelConfig
from transduce.describe import SENTENCE
from transduce.model import Tokens
from transduce.monitoring.hardware import peak_flops


def counted(run: Callable[[], Any]) -> float:
    """Return the FLOPs of all products that a function computes."""
    counter = FlopCounterMode(display=False)
    with counter:
        run()
    return float(counter.get_total_flops())


def count_training_flops(
    build: Callable[[ModelConfig], nn.Module], config: ModelConfig, sentence: int = SENTENCE
) -> float:
    """Return the FLOPs of training a model on one source and one target token.

    One sentence is run forward and backward on torch's meta device, which computes shapes only.
    """
    with torch.device("meta"):
        model: Any = build(config)
        ids = torch.zeros(1, sentence, dtype=torch.int64)
        tokens = Tokens.rows(ids)

    def step() -> None:
        logits, _ = model.decode(tokens, model.encode(tokens))
        logits.sum().backward()

    return counted(step) / sentence


def estimated_flops(seconds: float, hardware: dict[str, Any]) -> float | None:
    """Return the cost by the paper's method: time x GPUs x the speed that a GPU can sustain.

    The paper takes the single-precision speed of its GPUs. Here it is the speed of the precision
    that was trained with, bf16. None if the device is not known, as for every CPU.
    """
    peak = peak_flops(str(hardware.get("gpu", "")))
    return None if peak is None else seconds * hardware.get("gpus", 1) * peak
