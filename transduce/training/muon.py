"""Muon: gradient descent with momentum whose updates are made orthogonal, for matrices.

See K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

MOMENTUM = 0.95
# Coefficients of Newton-Schulz: five steps bring each singular value between 0.7 and 1.2 or so.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
# With this factor the root mean square of an update is about that of Adam, so that both share a
# learning rate.
LIKE_ADAM = 0.2


class Muon(Optimizer):
    """`torch.optim.Muon`, with all matrices of one shape in the same products.

    Nothing in a step depends on values that Python would have to wait for. So a step can be part
    of a CUDA graph, if `lr` is a tensor. As with torch's fused optimizers, nothing is updated where
    the attribute `found_inf` is a tensor that is not zero.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], lr: float | Tensor, weight_decay: float
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "fused": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update the matrices that have a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape.setdefault(weight.shape, []).append(weight)
            for weights in by_shape.values():
                self._update(weights, group["lr"], group["weight_decay"])

    def _update(self, weights: list[nn.Parameter], rate: float | Tensor, decay: float) -> None:
        """Update matrices of one shape."""
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        averages = [self.state[weight]["momentum_buffer"] for weight in weights]
        average = _stack(averages)
        gradient = _stack([weight.grad for weight in weights if weight.grad is not None])

        # A gradient that is not finite changes nothing.
        found_inf = getattr(self, "found_inf", None)
        if found_inf is not None:
            gradient = torch.where(found_inf > 0, average, gradient)
            rate = torch.where(found_inf > 0, 0.0, rate)

        # The average of gradients, and one step ahead of it (Nesterov).
        average = average.lerp(gradient, 1 - MOMENTUM)
        update = orthogonal(gradient.lerp(average, MOMENTUM))

        # Write the results to the state and the weights.
        step = update * (rate * LIKE_ADAM * math.sqrt(max(weights[0].shape)))
        torch._foreach_copy_(_own(averages), _shares(average, weights))
        torch._foreach_mul_(_own(weights), 1 - rate * decay)
        torch._foreach_sub_(_own(weights), _shares(step, weights))


def _stack(matrices: Sequence[Tensor]) -> Tensor:
    """B times (m, n) -> (B, m, n). Where FSDP gave each rank a part of each, all are gathered."""
    whole = [each.full_tensor() if isinstance(each, DTensor) else each for each in matrices]
    return torch.stack(whole)


def _shares(stacked: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return what of each matrix belongs to this rank: the same part as of its weight."""
    return _own(
        [
            distribute_tensor(each, like.device_mesh, like.placements, src_data_rank=None)
            if isinstance(like, DTensor)
            else each
            for each, like in zip(stacked, weights, strict=True)
        ]
    )


def _own(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [each.to_local() if isinstance(each, DTensor) else each for each in tensors]


def orthogonal(matrices: Tensor) -> Tensor:
    """(B, m, n) -> (B, m, n): nearly the orthogonal matrices closest to them, computed in bf16."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices

    # Singular values of at most 1.
    x = x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)

    # Each step maps every singular value s to A s + B s^3 + C s^5.
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return (x.mT if tall else x).float()
