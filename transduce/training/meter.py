"""Measurements between two reports. Results stay on the device: reading one waits for its step."""

from __future__ import annotations

import math
import time

import torch

from transduce.monitoring.progress import Progress
from transduce.training.hooks import Schedule
from transduce.training.step import StepResult


class Meter:
    """Collects the results of steps, and reports them together."""

    def __init__(self, progress: Progress, schedule: Schedule) -> None:
        self._progress = progress
        self._schedule = schedule
        self._reset()

    def _reset(self) -> None:
        self._results: list[StepResult] = []
        self._source_tokens = 0
        self._idle_seconds = 0.0
        self._start = time.perf_counter()

    def add(self, result: StepResult, source_tokens: int, idle_seconds: float) -> None:
        """Add a step, and the seconds for which it waited for data."""
        self._results.append(result)
        self._source_tokens += source_tokens
        self._idle_seconds += idle_seconds

    def restart_clock(self) -> None:
        """Exclude the time since the last report, in which the run was validated and saved."""
        if not self._results:
            self._start = time.perf_counter()

    def report(self, step: int) -> list[bool]:
        """Report all steps since the last report, if any; return which of them were skipped."""
        if not self._results:
            return []

        # Read the results from the device.
        norms = torch.stack([result.gradient_norm for result in self._results]).float().cpu()
        sums = torch.stack([result.sums for result in self._results]).double().cpu()
        tokens = torch.tensor([result.target_tokens for result in self._results])

        # Average over the steps that were not skipped.
        finite = torch.isfinite(norms)
        objective = math.nan
        loss = math.nan
        norm = math.nan
        if finite.any():
            finite_tokens = max(int(tokens[finite].sum()), 1)
            objective, loss = (sums[finite].sum(0) / finite_tokens).tolist()
            norm = float(norms[finite].mean())

        # Report means and sums, then start the next interval.
        self._progress.step(
            step,
            loss=loss,
            perplexity=math.exp(min(loss, 700)) if math.isfinite(loss) else math.nan,
            objective=objective,
            learning_rate=self._schedule(step),
            gradient_norm=norm,
            target_tokens=int(tokens.sum()),
            source_tokens=self._source_tokens,
            step_seconds=time.perf_counter() - self._start,
            data_seconds=self._idle_seconds,
        )
        self._reset()
        return [not is_finite for is_finite in finite.tolist()]
