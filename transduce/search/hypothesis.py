"""The input and the result of a search: a source sentence, and a translation with its scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """One source sentence to translate."""

    number: int
    source: Sequence[int]
    limit: int  # the largest number of tokens before the end
    prefix: Sequence[int] = ()  # forced first tokens
    seed: int = 0  # for sampling


class Hypothesis(NamedTuple):
    """One translation as token ids.

    `token_log_probs` has one value for each id and one for the end; their sum is `log_prob`.
    """

    ids: list[int]
    score: float  # log_prob / ((5 + length) / 6)^alpha, where the length includes the end
    log_prob: float
    token_log_probs: list[float]
    # The smallest score difference that decided anything in the search of this sentence.
    margin: float = math.inf

    @property
    def token_confidences(self) -> list[float]:
        """The probability of each token; the last one is that of the end."""
        return [math.exp(log_prob) for log_prob in self.token_log_probs]
