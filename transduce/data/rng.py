"""Random numbers that are the same on every machine and with every version of numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def raw(size: int, what: str, *seed: int) -> NDArray[np.uint64]:
    """Return random 64-bit numbers, a pure function of `what` and the seed.

    `what` names the purpose, so that two purposes with one seed get different numbers.
    """
    # NumPy guarantees only the raw numbers of a generator to stay the same in later versions.
    seeds = [number % 2**64 for number in seed]
    sequence = np.random.SeedSequence([*what.encode(), *seeds])
    return np.random.Philox(sequence).random_raw(size)


def permutation(size: int, what: str, *seed: int) -> NDArray[np.int64]:
    """Return the numbers below `size` in random order."""
    return np.argsort(raw(size, what, *seed), kind="stable")
