"""Verification of exports: another runtime must give the same numbers as the original model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from transduce.config import SearchConfig
from transduce.engines.self_check import (
    LENGTH,
    SAMPLE,
    TOLERANCE,
    compare_log_probs,
    sample_pairs,
)
from transduce.engines.torch import TorchEngine
from transduce.errors import ExportError
from transduce.model import Transformer


class Runtime(Protocol):
    """A model in another runtime. Sources and targets are our ids, including the end."""

    name: str

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        """Return the log-probability of each target token, given those before it."""

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        """Return at most `length` tokens of a greedy search, without the end."""


def verify(
    model: Transformer,
    runtime: Runtime,
    *,
    target_ids: range | None = None,
    tolerance: float = TOLERANCE,
) -> dict[str, Any]:
    """Compare log-probabilities and greedy translations of random samples, and return figures.

    `target_ids` are the ids that may be in a target; by default all but the special ones. An
    ExportError names the first difference.
    """
    # Log-probabilities of random targets.
    worst = compare_log_probs(
        model, runtime.name, runtime.log_probs, targets=target_ids or (), tolerance=tolerance
    )

    # Greedy translations. They may differ where rounding could have decided.
    equal = 0
    sources = [source for source, _ in sample_pairs(model.config)]
    plain = SearchConfig(beam_size=1, min_length=0, max_length=LENGTH)
    results = TorchEngine(model).search(sources, plain)
    for number, (source, (hypothesis,)) in enumerate(zip(sources, results, strict=True), start=1):
        ids = list(runtime.greedy(source, LENGTH))
        equal += hypothesis.ids == ids
        largest_rounding = tolerance * max(1, abs(hypothesis.log_prob))
        if hypothesis.ids != ids and hypothesis.margin > largest_rounding:
            raise ExportError(
                f"{runtime.name} translates sample {number} as {ids}, but transduce as "
                f"{hypothesis.ids}; report this with the bundle's config.toml"
            )
    return {
        "sequences": SAMPLE,
        "largest_difference": worst,
        "same_translations": equal,
        "tolerance": tolerance,
    }
