"""A training step as one CUDA graph: captured once, then replayed without launch overhead."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.config import TrainingConfig
from transduce.training.optimizer import set_learning_rate
from transduce.training.step import MicroBatch, StepResult, accumulate, seed_dropout, update

WARM_UP = 3  # eager steps before the capture, which compile kernels and allocate buffers


class GraphedStep:
    """`train_step` as a CUDA graph, on one GPU and for micro-batches of constant shapes.

    The first calls run eagerly; then the graph is captured and replayed. Other shapes start anew.
    """

    def __init__(
        self,
        learner: nn.Module,
        optimizers: list[Optimizer],
        training: TrainingConfig,
        device: torch.device,
    ) -> None:
        self._learner = learner
        self._optimizers = optimizers
        self._training = training
        self._scale = torch.zeros((), device=device)
        self._inputs: list[MicroBatch] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0
        self._result: tuple[Tensor, Tensor] = (self._scale, self._scale)

    def __call__(
        self, micro_batches: Sequence[MicroBatch], target_tokens: int, step: int, rate: float
    ) -> StepResult:
        """Take step 1, 2, 3, ... with this learning rate."""
        # A graph reads from fixed addresses: allocate inputs of these shapes.
        if _shapes(micro_batches) != _shapes(self._inputs):
            self._inputs = [
                (source.each(torch.empty_like), target.each(torch.empty_like))
                for source, target in micro_batches
            ]
            self._graph = None
            self._calls = 0

        # Everything that changes between steps is written to memory that the graph reads.
        self._copy_inputs(micro_batches)
        self._scale.fill_(1 / target_tokens)
        set_learning_rate(self._optimizers, rate)
        seed_dropout(self._training.seed, step, 0, self._scale.device)

        # Warm up on a side stream, as PyTorch requires; then capture; then replay.
        self._calls += 1
        if self._calls <= WARM_UP:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._result = self._run_step()
            torch.cuda.current_stream().wait_stream(stream)
        elif self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # "thread_local": the prefetching thread may copy batches to the GPU meanwhile.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._result = self._run_step()
        if self._graph is not None:
            self._graph.replay()

        # The next replay overwrites the results.
        sums, norm = self._result
        return StepResult(sums.clone(), target_tokens, norm.clone())

    def reset(self) -> None:
        """Drop the graph and the memory that it holds; the next call starts anew."""
        self._inputs = []
        self._graph = None
        self._result = (self._scale, self._scale)

    def _copy_inputs(self, micro_batches: Sequence[MicroBatch]) -> None:
        for own, given in zip(self._inputs, micro_batches, strict=True):
            for own_tokens, given_tokens in zip(own, given, strict=True):
                pairs = zip(own_tokens.tensors(), given_tokens.tensors(), strict=True)
                for own_tensor, given_tensor in pairs:
                    own_tensor.copy_(given_tensor, non_blocking=True)

    def _run_step(self) -> tuple[Tensor, Tensor]:
        sums, norm = accumulate(self._learner, self._inputs, self._scale)
        update(self._learner, self._optimizers, norm, self._training.clip_norm)
        return sums, norm


def _shapes(micro_batches: Sequence[MicroBatch]) -> list[tuple[int, ...]]:
    return [(*source.ids.shape, *target.ids.shape) for source, target in micro_batches]
