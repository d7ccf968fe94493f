"""Another runtime gives the same numbers as ours, or an error names the first difference: what every export goes by."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from transduce.config import SearchConfig
from transduce.engines.torch import TorchEngine, log_probabilities
from transduce.errors import ExportError
from transduce.model import Tokens, Transformer

SAMPLE = 16  # sequences of random tokens, and as many texts
LENGTH = 12  # tokens that are translated
TOLERANCE = 1e-4  # of a log-probability in float32; of a tiny one, the share


class Runtime(Protocol):
    """A model in another runtime. Sources and targets are our ids and end with the end of the sentence."""

    name: str

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        """Of each target token, given those before it."""

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        """The most probable tokens, one after the other, without the end: at most so many."""


def verify(
    model: Transformer, runtime: Runtime, *, said: range | None = None, tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """Compare log-probabilities and translated tokens of a sample; the figures. `said`: what can stand in a target."""
    config, chance, worst, equal = model.config, random.Random(1), 0.0, 0
    read, said = (
        range(2, (config.source_vocab_size or config.vocab_size) - 1),
        said or range(2, config.vocab_size - 1),
    )
    sources, targets = ([[*ids, 0] for ids in sample_ids(side, chance)] for side in (read, said))
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        pairs = zip(
            _log_probs(model, source, target), runtime.log_probs(source, target), strict=True
        )
        for place, (mine, other) in enumerate(pairs, start=1):
            worst = max(worst, difference := abs(mine - other) / max(1, abs(mine)))
            if not difference <= tolerance:  # a NaN is a difference
                raise ExportError(
                    f"{runtime.name} gives token {place} of sample {number} the log-probability {other:.5f}, "
                    f"but transduce {mine:.5f}; report this with the bundle's config.toml"
                )
    found = TorchEngine(model).search(sources, SearchConfig(beam_size=1, max_length=LENGTH))
    for number, (source, (here,)) in enumerate(zip(sources, found, strict=True), start=1):
        there = list(runtime.greedy(source, LENGTH))
        equal += here.ids == there
        if here.ids != there and here.margin > tolerance * max(1, abs(here.log_prob)):
            raise ExportError(
                f"{runtime.name} translates sample {number} as {there}, but transduce as {here.ids}"
            )
    return {
        "sequences": SAMPLE,
        "largest_difference": worst,
        "same_translations": equal,
        "tolerance": tolerance,
    }


def sample_ids(ids: Sequence[int], chance: random.Random) -> list[list[int]]:
    """Random sequences of these."""
    return [chance.choices(ids, k=chance.randint(1, 24)) for _ in range(SAMPLE)]


@torch.inference_mode()
def _log_probs(model: Transformer, source: list[int], target: list[int]) -> list[float]:
    tokens = Tokens.padded([target], model.config.pad)
    logits = model(Tokens.padded([source], 0), tokens.shifted_right(model.config.pad))[0]  # (T, V)
    chosen: list[float] = (
        log_probabilities(logits).gather(-1, torch.tensor(target)[:, None])[:, 0].tolist()
    )
    return chosen
