"""Chance that is the same on every machine and with every version of numpy: a pure function of a name and numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def raw(size: int, what: str, *seed: int) -> NDArray[np.uint64]:
    """Random 64-bit numbers. `what` keeps one use from repeating another's."""
    # Of numpy's generators only the raw numbers are promised to stay the same.
    sequence = np.random.SeedSequence([*what.encode(), *(number % 2**64 for number in seed)])
    return np.random.Philox(sequence).random_raw(size)


def permutation(size: int, what: str, *seed: int) -> NDArray[np.int64]:
    """The numbers below `size` in random order."""
    return np.argsort(raw(size, what, *seed), kind="stable")
