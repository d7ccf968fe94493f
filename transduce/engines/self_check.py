"""The self-check of an engine: its log-probabilities must be those of the plain model.

What runs is often not what was read: an engine has caches, fused kernels or another runtime. A
model that was changed in one place only would train well and translate badly. So engines are
compared with the model itself, written out in torch, before their results are used.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from transduce.config import SearchConfig
from transduce.engines.model_calls import log_probabilities, teacher_forced
from transduce.engines.torch import Engine
from transduce.errors import ExportError
from transduce.model import Tokens

SAMPLE = 16  # sequences of random tokens
LENGTH = 12  # tokens that are translated
TOLERANCE = 1e-4  # of a log-probability in float32; relative if it is below -1
# Of the mean over the tokens of a hypothesis. A different formula changes it by far more.
SEARCH_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
# A search that reorders its hypotheses, so that a wrong cache is noticed.
_SEARCH = SearchConfig(beam_size=2, n_best=2, max_length=LENGTH)


def compare_log_probs(
    model: Any,
    name: str,
    log_probs: Callable[[Sequence[int], Sequence[int]], Sequence[float]],
    *,
    targets: Sequence[int] = (),
    tolerance: float = TOLERANCE,
) -> float:
    """Compare the log-probabilities of random sequences, and return the largest difference.

    Args:
        model: The plain model, in float32.
        name: The name of the other runtime, for the message.
        log_probs: Returns the other runtime's log-probability of each token of a target.
        targets: The ids that may be in a target; by default all but the special ones.
        tolerance: The largest difference; a larger one raises an ExportError.
    """
    worst = 0.0
    for number, (source, target) in enumerate(sample_pairs(model.config, targets), start=1):
        pairs = zip(plain_log_probs(model, source, target), log_probs(source, target), strict=True)
        for position, (expected, found) in enumerate(pairs, start=1):
            difference = abs(expected - found) / max(1, abs(expected))
            worst = max(worst, difference)
            if not difference <= tolerance:  # true for NaN as well
                raise ExportError(
                    f"{name} gives token {position} of sample {number} the log-probability "
                    f"{found:.5f}, but transduce gives {expected:.5f}; report this with the "
                    "bundle's config.toml"
                )
    return worst


def search_difference(engine: Engine, model: Any, sources: Sequence[Sequence[int]]) -> str | None:
    """Return how an engine's hypotheses are scored otherwise than by the model, or None.

    `model` is the plain model, with the same weights and in the same precision.
    """
    dtype = next(model.parameters()).dtype
    tolerance = SEARCH_TOLERANCE.get(dtype, SEARCH_TOLERANCE[torch.float32])
    found = engine.search(sources, _SEARCH)
    for number, (source, hypotheses) in enumerate(zip(sources, found, strict=True), start=1):
        for hypothesis in hypotheses:
            tokens = len(hypothesis.ids) + 1
            expected = sum(plain_log_probs(model, source, [*hypothesis.ids, 0])) / tokens
            mean = hypothesis.log_prob / tokens
            if not abs(mean - expected) <= tolerance * max(1, abs(expected)):
                return (
                    f"the search gives a token of sentence {number} the mean log-probability "
                    f"{mean:.3f}, but the model gives {expected:.3f}"
                )
    return None


def sample_pairs(config: Any, targets: Sequence[int] = ()) -> list[tuple[list[int], list[int]]]:
    """Return pairs of random token ids, each with the end of the sentence."""
    chance = random.Random(1)
    source_ids = range(2, (config.source_vocab_size or config.vocab_size) - 1)
    target_ids = targets or range(2, config.vocab_size - 1)
    sides = [sample_ids(source_ids, chance), sample_ids(target_ids, chance)]
    return [([*source, 0], [*target, 0]) for source, target in zip(*sides, strict=True)]


def sample_ids(ids: Sequence[int], chance: random.Random) -> list[list[int]]:
    """Return random sequences of these ids."""
    return [chance.choices(ids, k=chance.randint(1, 24)) for _ in range(SAMPLE)]


@torch.inference_mode()
def plain_log_probs(model: Any, source: Sequence[int], target: Sequence[int]) -> list[float]:
    """Return the log-probability of each target token, which the model reads all at once."""
    device = next(model.parameters()).device
    pad = model.config.pad
    sources = Tokens.padded([source], model.config.source_pad).to(device)
    inputs = Tokens.padded([target], pad).shifted_right(pad).to(device)
    logits = teacher_forced(model, sources, inputs)  # (1, T, V)
    ids = torch.tensor(target, device=device)[:, None]
    log_probs: list[float] = log_probabilities(logits[0]).gather(-1, ids)[:, 0].tolist()
    return log_probs
