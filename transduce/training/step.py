"""One optimizer step. The loss is a sum, divided once by the target tokens of all micro-batches on all ranks, so that
accumulation, packing and uneven ranks give exactly the gradient of one big batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.config import TrainingConfig
from transduce.data.batches import up_to
from transduce.errors import ConfigError
from transduce.model import Tokens
from transduce.training.distributed import World, gradients_shared
from transduce.training.hooks import Loss, own_loss
from transduce.training.loss import ends_as_standard, projected_loss, smoothed_loss
from transduce.training.optimizer import set_learning_rate

# Source and target, both as they are: the learner shifts the target.
MicroBatch = tuple[Tokens, Tokens]


class Learner(nn.Module):
    """The model and its loss as one module: the root for which FSDP gathers the shared matrix.

    In bf16 the weights stay float32 masters; each forward pass works on a rounded copy of them.
    """

    def __init__(
        self, model: nn.Module, eps_ls: float, *, bf16: bool = False, loss: Loss | None = None
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.eps_ls = eps_ls
        self.bf16 = bf16
        self.loss = loss

    def forward(self, source: Tokens, target: Tokens) -> Tensor:
        """(B, S), (B, T) -> what is minimized and the negative log-likelihood, summed: (2,)."""
        if not self.bf16:
            return self._sums(source, target)
        names, weights = zip(*self.named_parameters(), strict=True)
        rounded = dict(zip(names, _Rounded.apply(*weights), strict=True))
        with nn.utils.stateless._reparametrize_module(self, rounded):
            return self._sums(source, target)

    def _sums(self, source: Tokens, target: Tokens) -> Tensor:
        inputs = target.shifted_right(self.model.config.pad)
        if self.loss is None and source.ids.is_cuda and ends_as_standard(self.model):
            hidden, _ = self.model.decode_hidden(inputs, self.model.encode(source))
            return projected_loss(hidden, self.model.output_weight, target.ids, self.eps_ls)
        logits = teacher_forced(self.model, source, inputs)
        if self.loss is None:
            return torch.stack(smoothed_loss(logits, target.ids, self.eps_ls))
        likelihood = smoothed_loss(logits.detach(), target.ids, 0.0)[1]
        return torch.stack([own_loss(self.loss, logits, target.ids), likelihood])


def teacher_forced(model: Any, source: Tokens, inputs: Tokens) -> Tensor:
    """The logits of every target position, by the model's own `forward` if it has one:  -> (B, T, V)."""
    has_forward = type(model).forward is not nn.Module.forward
    logits: Tensor = (
        model(source, inputs) if has_forward else model.decode(inputs, model.encode(source))[0]
    )
    if logits.shape != (expected := (*inputs.ids.shape, model.config.vocab_size)):
        raise ConfigError(
            f"the model {type(model).__name__} gave logits of shape {tuple(logits.shape)}; expected {expected}: "
            "rows, tokens, vocabulary"
        )
    return logits


class _Rounded(torch.autograd.Function):
    """All weights as bf16 in a few launches, and their gradients back as float32."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        # One after the other, so that weights which are multiplied together are one matrix already.
        sizes = [up_to(weight.numel(), 8) for weight in weights]
        parts = weights[0].new_empty(sum(sizes), dtype=torch.bfloat16).split(sizes)
        copies = [
            part[: weight.numel()].view_as(weight)
            for part, weight in zip(parts, weights, strict=True)
        ]
        torch._foreach_copy_(copies, list(weights))
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        copies = [torch.empty_like(gradient, dtype=torch.float32) for gradient in gradients]
        torch._foreach_copy_(copies, list(gradients))
        return tuple(copies)


@dataclass(frozen=True)
class StepResult:
    """What one step did, over all ranks. Tensors, so that a GPU need not be waited for."""

    sums: Tensor  # (2,): smoothed loss, negative log-likelihood
    target_tokens: int
    gradient_norm: Tensor

    @property
    def loss(self) -> float:
        """Per target token."""
        return float(self.sums[0]) / self.target_tokens

    @property
    def perplexity(self) -> float:
        """Per target token, without smoothing."""
        return math.exp(min(float(self.sums[1]) / self.target_tokens, 700.0))

    @property
    def finite(self) -> bool:
        """Whether the weights were updated."""
        return bool(torch.isfinite(self.gradient_norm))


def train_step(
    learner: nn.Module,
    optimizers: list[Optimizer],
    micro_batches: Sequence[MicroBatch],
    target_tokens: int,
    training: TrainingConfig,
    step: int,
    rate: float,
    world: World,
) -> StepResult:
    """Step 1, 2, 3, ...: gradients of the micro-batches of this rank, shared by all, and one update.

    `target_tokens` counts those of all ranks. A gradient that is not finite on any rank is applied on none.
    """
    seed_dropout(training.seed, step, world.rank, world.device)
    set_learning_rate(optimizers, rate)
    # DDP and FSDP average over ranks; the gradient wanted is the sum over ranks by the global count.
    scale = torch.tensor(world.size / target_tokens, device=world.device)
    sums, norm = accumulate(learner, micro_batches, scale)
    update(learner, optimizers, norm, training.clip_norm)
    return StepResult(world.total(sums), target_tokens, norm)


def accumulate(
    learner: nn.Module, micro_batches: Sequence[MicroBatch], scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the scaled loss of all micro-batches: its two sums on this rank, and the norm over all ranks."""
    sums = torch.zeros(2, device=scale.device)
    for index, (source, target) in enumerate(micro_batches):
        with gradients_shared(learner, now=index == len(micro_batches) - 1):
            part = learner(source, target)
            (part[0] * scale).backward()
        sums = sums + part.detach()
    norm = nn.utils.get_total_norm(
        [weight.grad for weight in learner.parameters() if weight.grad is not None]
    )
    return sums, norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def update(learner: nn.Module, optimizers: list[Optimizer], norm: Tensor, clip_norm: float) -> None:
    """Clip, and let the optimizers apply the gradient if it is finite: the norm is the same number on all ranks."""
    if clip_norm > 0:
        nn.utils.clip_grads_with_norm_(learner.parameters(), clip_norm, norm)
    for optimizer in optimizers:
        # Decided on the device: the host need not wait.
        if norm.is_cuda and optimizer.defaults.get("fused"):
            optimizer.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
            optimizer.step()
        elif torch.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad()


def seed_dropout(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed the generator that a step draws from.

    `torch.manual_seed` would take a stack trace for each kind of device that the machine has not.
    """
    number = dropout_seed(seed, step, rank)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)
    torch.default_generator.manual_seed(number)


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """Dropout is a function of these numbers alone, so that a resumed run repeats it."""
    return hash((seed, step, rank)) % 2**63  # a hash of integers does not vary between processes
