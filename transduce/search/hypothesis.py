"""What a search is asked and what it finds: one translation as token ids, with the model's opinion of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """One sentence to search."""

    number: int
    source: Sequence[int]
    limit: int
    prefix: Sequence[int] = ()
    seed: int = 0  # of its samples


class Hypothesis(NamedTuple):
    """One translation. `token_log_probs` has a number for each id and one for the end; they sum to `log_prob`."""

    ids: list[int]
    score: float  # log_prob / ((5 + length) / 6)^alpha, the end counted
    log_prob: float
    token_log_probs: list[float]
    margin: float = math.inf  # by how much the closest decision of its sentence's search was taken

    @property
    def token_confidences(self) -> list[float]:
        """The probability of each token, the end the last."""
        return [math.exp(value) for value in self.token_log_probs]
