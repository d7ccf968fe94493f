"""What happened between two reports, kept on the device until then: reading a result would wait for its step."""

from __future__ import annotations

import math
import time

import torch

from transduce.monitoring.progress import Progress
from transduce.training.hooks import Schedule
from transduce.training.step import StepResult


class Meter:
    """The steps since the last report."""

    def __init__(self, progress: Progress, rate: Schedule) -> None:
        self._progress, self._rate = progress, rate
        self._results: list[StepResult] = []
        self._source_tokens, self._waited = 0, 0.0
        self._start = time.perf_counter()

    def add(self, result: StepResult, source_tokens: int, waited: float) -> None:
        """One step more, and how long its data was waited for."""
        self._results.append(result)
        self._source_tokens += source_tokens
        self._waited += waited

    def resume(self) -> None:
        """Validation and saving are not counted as time of steps."""
        if not self._results:
            self._start = time.perf_counter()

    def write(self, step: int) -> list[bool]:
        """One report of all results so far, if there are any; which of them were skipped."""
        if not self._results:
            return []
        norms = torch.stack([result.gradient_norm for result in self._results]).float().cpu()
        sums = torch.stack([result.sums for result in self._results]).double().cpu()
        skipped = [not math.isfinite(norm) for norm in norms.tolist()]
        tokens = torch.tensor([result.target_tokens for result in self._results])
        good = torch.isfinite(norms)
        total = max(int(tokens[good].sum()), 1)
        loss, likelihood = (
            (sums[good].sum(0) / total).tolist() if good.any() else (math.nan, math.nan)
        )
        self._progress.step(
            step,
            loss=loss,
            perplexity=math.exp(min(likelihood, 700)) if math.isfinite(likelihood) else math.nan,
            learning_rate=self._rate(step),
            gradient_norm=float(norms[good].mean()) if good.any() else math.nan,
            target_tokens=int(tokens.sum()),
            source_tokens=self._source_tokens,
            step_seconds=time.perf_counter() - self._start,
            data_seconds=self._waited,
        )
        self._results, self._source_tokens, self._waited, self._start = (
            [],
            0,
            0.0,
            time.perf_counter(),
        )
        return skipped
