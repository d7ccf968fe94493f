"""One optimiser step. The loss is a sum, divided once by the target tokens of all micro-batches on all ranks, so that
accumulation, packing and uneven ranks give exactly the gradient of one big batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.config import Recipe
from transduce.model import Tokens, Transformer
from transduce.training.loss import smoothed_loss
from transduce.training.optimiser import set_learning_rate
from transduce.training.parallel import World, gradients_shared
from transduce.training.schedule import learning_rate


class Learner(nn.Module):
    """The model and its loss as one module: the root for which FSDP gathers the shared matrix."""

    def __init__(self, model: Transformer, eps_ls: float) -> None:
        super().__init__()
        self.model = model
        self.eps_ls = eps_ls

    def forward(self, source: Tokens, target: Tokens) -> Tensor:
        """(B, S), (B, T) -> the smoothed loss and the negative log-likelihood, summed: (2,)."""
        logits = self.model(source, target.shifted_right(self.model.config.pad))
        return torch.stack(smoothed_loss(logits, target.ids, self.eps_ls))


@dataclass(frozen=True)
class StepResult:
    """What one step did, over all ranks. Tensors, so that a GPU need not be waited for."""

    sums: Tensor  # (2,): smoothed loss, negative log-likelihood
    target_tokens: Tensor
    gradient_norm: Tensor

    @property
    def loss(self) -> float:
        """Per target token."""
        return float(self.sums[0] / self.target_tokens)

    @property
    def perplexity(self) -> float:
        """Per target token, without smoothing."""
        return math.exp(float(self.sums[1] / self.target_tokens))

    @property
    def finite(self) -> bool:
        """Whether the weights were updated."""
        return bool(torch.isfinite(self.gradient_norm))


def train_step(
    learner: nn.Module,
    optimisers: list[Optimizer],
    micro_batches: Sequence[tuple[Tokens, Tokens]],
    recipe: Recipe,
    step: int,
    world: World,
) -> StepResult:
    """Step 1, 2, 3, ...: gradients of the micro-batches of this rank, shared by all, and one update.

    A gradient that is not finite on any rank is not applied on any: the norm is the same number everywhere.
    """
    training = recipe.training
    pad = recipe.model.pad
    counts = torch.stack([(target.ids != pad).sum() for _, target in micro_batches]).sum()
    target_tokens = world.total(counts)
    sums = torch.zeros(2, device=world.device)
    for index, (source, target) in enumerate(micro_batches):
        torch.manual_seed(dropout_seed(training.seed, step, world.rank, index))
        with gradients_shared(learner, now=index == len(micro_batches) - 1):
            part = learner(source, target)
            # DDP and FSDP average over ranks; the gradient wanted is the sum over ranks by the global count.
            (part[0] * (world.size / target_tokens)).backward()
        sums += part.detach()
    parameters = [weight for weight in learner.parameters() if weight.grad is not None]
    norm = nn.utils.get_total_norm([weight.grad for weight in parameters])  # type: ignore[misc]
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    if training.clip_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, training.clip_norm, norm)
    set_learning_rate(optimisers, learning_rate(recipe, step))
    for optimiser in optimisers:
        if torch.isfinite(norm):
            optimiser.step()
        optimiser.zero_grad()
    return StepResult(world.total(sums), target_tokens, norm)


def dropout_seed(seed: int, step: int, rank: int, micro_batch: int) -> int:
    """Dropout is a function of these four numbers alone, so that a resumed run repeats it."""
    return hash((seed, step, rank, micro_batch)) % 2**63  # a hash of integers does not vary between processes
