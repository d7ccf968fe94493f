"""§5.3: Adam as in the paper; AdamW and Muon as alternatives that are common today."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.config import TrainingConfig


def build_optimizers(
    parameters: Iterable[tuple[str, nn.Parameter]], training: TrainingConfig
) -> list[Optimizer]:
    """Return one optimizer, or two with Muon, which takes only the matrices inside the layers.

    On a GPU Adam's learning rate is a tensor that `set_learning_rate` fills, so that a captured
    CUDA graph sees each new value.
    """
    named = list(parameters)
    if training.optimizer != "muon":
        return [_adam([weight for _, weight in named], training)]

    # Muon orthogonalizes matrices; embeddings, biases and norms stay with Adam.
    matrices = [weight for name, weight in named if weight.ndim == 2 and _inside_a_layer(name)]
    rest = [weight for name, weight in named if weight.ndim != 2 or not _inside_a_layer(name)]
    muon = torch.optim.Muon(
        matrices, lr=0.0, weight_decay=training.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    # With "match_rms_adamw" both take steps of the same size at the same learning rate.
    return [muon, _adam(rest, training)]


def _inside_a_layer(name: str) -> bool:
    return ".encoder." in f".{name}" or ".decoder." in f".{name}"


def _adam(parameters: list[nn.Parameter], training: TrainingConfig) -> Optimizer:
    kind = torch.optim.Adam if training.optimizer == "adam" else torch.optim.AdamW
    on_gpu = parameters[0].is_cuda
    return kind(
        parameters,
        lr=torch.zeros((), device=parameters[0].device) if on_gpu else 0.0,
        betas=(training.beta_1, training.beta_2),
        eps=training.eps,
        weight_decay=training.weight_decay,
        fused=True,
        capturable=on_gpu,
    )


def set_learning_rate(optimizers: list[Optimizer], rate: float) -> None:
    """Set the learning rate of every parameter group of every optimizer."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
