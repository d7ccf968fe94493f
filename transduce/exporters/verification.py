"""Verification of exports: another runtime must give the same numbers as the original model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from transduce.config import SearchConfig
from transduce.engines.torch import TorchEngine, log_probabilities
from transduce.errors import ExportError
from transduce.model import Tokens, Transformer

SAMPLE = 16  # sequences of random tokens
LENGTH = 12  # tokens that are translated
TOLERANCE = 1e-4  # of a log-probability in float32; relative if it is below -1


class Runtime(Protocol):
    """A model in another runtime. Sources and targets are our ids, including the end."""

    name: str

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        """Return the log-probability of each target token, given those before it."""

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        """Return at most `length` tokens of a greedy search, without the end."""


def verify(
    model: Transformer, runtime: Runtime, *, said: range | None = None, tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """Compare log-probabilities and greedy translations of random samples, and return figures.

    `said` are the ids that may be in a target. An ExportError names the first difference.
    """
    config = model.config
    source_ids = range(2, (config.source_vocab_size or config.vocab_size) - 1)
    target_ids = said or range(2, config.vocab_size - 1)
    chance = random.Random(1)
    sources = [[*ids, 0] for ids in sample_ids(source_ids, chance)]
    targets = [[*ids, 0] for ids in sample_ids(target_ids, chance)]

    # Log-probabilities of random targets.
    worst = 0.0
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        pairs = zip(
            _log_probs(model, source, target), runtime.log_probs(source, target), strict=True
        )
        for position, (expected, found) in enumerate(pairs, start=1):
            difference = abs(expected - found) / max(1, abs(expected))
            worst = max(worst, difference)
            if not difference <= tolerance:  # true for NaN as well
                raise ExportError(
                    f"{runtime.name} gives token {position} of sample {number} the log-probability "
                    f"{found:.5f}, but transduce gives {expected:.5f}; report this with the "
                    "bundle's config.toml"
                )

    # Greedy translations. They may differ where rounding could have decided.
    equal = 0
    results = TorchEngine(model).search(sources, SearchConfig(beam_size=1, max_length=LENGTH))
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


def sample_ids(ids: Sequence[int], chance: random.Random) -> list[list[int]]:
    """Return random sequences of these ids."""
    return [chance.choices(ids, k=chance.randint(1, 24)) for _ in range(SAMPLE)]


@torch.inference_mode()
def _log_probs(model: Transformer, source: list[int], target: list[int]) -> list[float]:
    """Return the log-probability of each target token."""
    tokens = Tokens.padded([target], model.config.pad)
    logits = model(Tokens.padded([source], 0), tokens.shifted_right(model.config.pad))[0]  # (T, V)
    ids = torch.tensor(target)[:, None]
    log_probs: list[float] = log_probabilities(logits).gather(-1, ids)[:, 0].tolist()
    return log_probs
