"""A whole step as one CUDA graph: captured once, then replayed, so that no launch is ever waited for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.config import TrainingConfig
from transduce.training.optimizer import set_learning_rate
from transduce.training.step import MicroBatch, StepResult, accumulate, seed_dropout, update

WARM_UP = 3  # steps before the capture: kernels are compiled and buffers allocated in them


class GraphedStep:
    """`train_step` on one GPU for micro-batches of one shape. The first calls run step by step, then the graph."""

    def __init__(
        self,
        learner: nn.Module,
        optimizers: list[Optimizer],
        training: TrainingConfig,
        device: torch.device,
    ) -> None:
        self._learner, self._optimizers, self._training = learner, optimizers, training
        self._scale = torch.zeros((), device=device)
        self._inputs: list[MicroBatch] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0
        self._result: tuple[Tensor, Tensor] = (self._scale, self._scale)

    def __call__(
        self, micro_batches: Sequence[MicroBatch], target_tokens: int, step: int, rate: float
    ) -> StepResult:
        """Take step 1, 2, 3, ..."""
        if [batch[0].ids.shape + batch[1].ids.shape for batch in micro_batches] != [
            batch[0].ids.shape + batch[1].ids.shape for batch in self._inputs
        ]:
            self._inputs = [
                (source.each(torch.empty_like), target.each(torch.empty_like))
                for source, target in micro_batches
            ]
            self._graph, self._calls = None, 0
        for mine, given in zip(self._inputs, micro_batches, strict=True):
            for side, other in zip(mine, given, strict=True):
                for kept, new in zip(side.tensors(), other.tensors(), strict=True):
                    kept.copy_(new, non_blocking=True)
        self._scale.fill_(1 / target_tokens)
        set_learning_rate(self._optimizers, rate)
        seed_dropout(self._training.seed, step, 0, self._scale.device)
        self._calls += 1
        if self._calls <= WARM_UP:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._result = self._work()
            torch.cuda.current_stream().wait_stream(stream)
        elif self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # Other threads go on sending batches to the device: only this one is captured.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._result = self._work()
        if self._graph is not None:
            self._graph.replay()
        sums, norm = self._result
        return StepResult(sums.clone(), target_tokens, norm.clone())

    def forget(self) -> None:
        """Drop the graph, which keeps the memory of a step as long as it lives; the next call begins anew."""
        self._inputs, self._graph, self._result = [], None, (self._scale, self._scale)

    def _work(self) -> tuple[Tensor, Tensor]:
        sums, norm = accumulate(self._learner, self._inputs, self._scale)
        update(self._learner, self._optimizers, norm, self._training.clip_norm)
        return sums, norm
