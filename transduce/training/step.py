"""One optimizer step.

The loss is a sum. It is divided once by the number of target tokens in all micro-batches on all
ranks, so accumulation, packing and uneven ranks give exactly the gradient of one large batch.
"""

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
from transduce.engines.model_calls import teacher_forced
from transduce.model import Tokens
from transduce.training.distributed import World, gradient_sync
from transduce.training.hooks import Loss, call_loss
from transduce.training.loss import has_standard_output, projected_loss, smoothed_loss
from transduce.training.optimizer import set_learning_rate

# Source and target. The target is not shifted: the learner does that.
MicroBatch = tuple[Tokens, Tokens]


class Learner(nn.Module):
    """The model and its loss as one module, the root that DDP and FSDP wrap.

    In bf16 the weights stay float32 masters; each forward pass uses a rounded copy of them.
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
        """(B, S), (B, T) -> (2,): sums of the training loss and the negative log-likelihood."""
        if not self.bf16:
            return self._sums(source, target)
        # Compute with rounded copies in the place of the weights.
        names, weights = zip(*self.named_parameters(), strict=True)
        rounded = dict(zip(names, _Rounded.apply(*weights), strict=True))
        with nn.utils.stateless._reparametrize_module(self, rounded):
            return self._sums(source, target)

    def _sums(self, source: Tokens, target: Tokens) -> Tensor:
        inputs = target.shifted_right(self.model.config.pad)

        # A standard model's last product is fused with the loss.
        can_fuse = source.ids.device.type in ("cuda", "cpu")
        if self.loss is None and can_fuse and has_standard_output(self.model):
            hidden, _ = self.model.decode_hidden(inputs, self.model.encode(source))
            return projected_loss(hidden, self.model.output_weight, target.ids, self.eps_ls)

        logits = teacher_forced(self.model, source, inputs)
        if self.loss is None:
            return torch.stack(smoothed_loss(logits, target.ids, self.eps_ls))

        # With a custom loss, the perplexity still comes from the likelihood.
        nll = smoothed_loss(logits.detach(), target.ids, 0.0)[1]
        return torch.stack([call_loss(self.loss, logits, target.ids), nll])


class _Rounded(torch.autograd.Function):
    """Copy all weights to bf16 in a few launches, and their gradients back to float32."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        # The copies are adjacent in one buffer, so weights that are multiplied together (w_q, w_k
        # and w_v) already form one matrix.
        sizes = [up_to(weight.numel(), 8) for weight in weights]
        buffer = weights[0].new_empty(sum(sizes), dtype=torch.bfloat16)
        parts = zip(buffer.split(sizes), weights, strict=True)
        copies = [part[: weight.numel()].view_as(weight) for part, weight in parts]
        torch._foreach_copy_(copies, list(weights))
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        copies = [torch.empty_like(gradient, dtype=torch.float32) for gradient in gradients]
        torch._foreach_copy_(copies, list(gradients))
        return tuple(copies)


@dataclass(frozen=True)
class StepResult:
    """The result of one step over all ranks, as tensors: reading them waits for the GPU."""

    sums: Tensor  # (2,): training loss, negative log-likelihood
    target_tokens: int
    gradient_norm: Tensor

    @property
    def objective(self) -> float:
        """What training minimizes, per target token: the loss with label smoothing."""
        return float(self.sums[0]) / self.target_tokens

    @property
    def perplexity(self) -> float:
        """The perplexity per target token, without label smoothing."""
        return math.exp(min(float(self.sums[1]) / self.target_tokens, 700.0))

    @property
    def finite(self) -> bool:
        """Whether the gradient was finite, so that the weights were updated."""
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
    """Take step 1, 2, 3, ...: accumulate gradients, share them between ranks, update once.

    `micro_batches` are those of this rank; `target_tokens` counts those of all ranks. If the
    gradient is not finite on any rank, no rank applies it.
    """
    seed_dropout(training.seed, step, world.rank, world.device)
    set_learning_rate(optimizers, rate)
    # DDP and FSDP average over ranks, but the gradient is the sum over ranks divided by the
    # global number of tokens.
    scale = torch.tensor(world.size / target_tokens, device=world.device)
    sums, norm = accumulate(learner, micro_batches, scale)
    update(learner, optimizers, norm, training.clip_norm)
    return StepResult(world.total(sums), target_tokens, norm)


def accumulate(
    learner: nn.Module, micro_batches: Sequence[MicroBatch], scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Accumulate the gradients of the scaled loss over the micro-batches.

    Return the two sums of `Learner.forward` on this rank, and the gradient norm over all ranks.
    """
    sums = torch.zeros(2, device=scale.device)
    for index, (source, target) in enumerate(micro_batches):
        # Ranks exchange gradients once a step, after the last micro-batch.
        with gradient_sync(learner, now=index == len(micro_batches) - 1):
            part = learner(source, target)
            (part[0] * scale).backward()
        sums = sums + part.detach()

    # The norm of the whole gradient, the same number on every rank.
    gradients = [weight.grad for weight in learner.parameters() if weight.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if hasattr(norm, "full_tensor"):  # FSDP: each rank has the norm of its shards
        norm = norm.full_tensor()
    return sums, norm


def update(learner: nn.Module, optimizers: list[Optimizer], norm: Tensor, clip_norm: float) -> None:
    """Clip the gradient and apply it if it is finite. All ranks pass the same norm."""
    if clip_norm > 0:
        nn.utils.clip_grads_with_norm_(learner.parameters(), clip_norm, norm)
    for optimizer in optimizers:
        if norm.is_cuda and optimizer.defaults.get("fused"):
            # A fused optimizer skips the step on the device, so Python need not wait for the norm.
            optimizer.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
            optimizer.step()
        elif torch.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad()


def seed_dropout(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed the random generators that a step uses.

    `torch.manual_seed` is not used: it takes a stack trace for each device type that the machine
    does not have, which is slow.
    """
    number = dropout_seed(seed, step, rank)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)
    torch.default_generator.manual_seed(number)


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """Return a seed that depends on nothing else, so that a resumed run repeats its dropout."""
    return hash((seed, step, rank)) % 2**63  # a hash of integers is the same in every process
