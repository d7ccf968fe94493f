"""§3.5: PE(pos + k) is a linear function of PE(pos), for every fixed offset k."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.model.positions import sinusoids
from transduce.paper.claims.claim import Chart, Claim, Context, Finding

D_MODEL = 64
OFFSETS = (1, 2, 4, 8, 16, 32, 64)
FITTED = 256  # positions from which the function is fitted
TESTED = 256  # further positions on which it is tested


def experiment(context: Context) -> Finding:
    """Fit a map for each offset, and test it on later positions and on a random table.

    The map is a matrix of 2 x 2 blocks, one for each sine and its cosine: a rotation.
    """
    positions = torch.arange(FITTED + TESTED + max(OFFSETS), dtype=torch.float64)
    exact = _sinusoids(positions)
    generator = torch.Generator().manual_seed(1)
    random = torch.randn(exact.shape, generator=generator, dtype=torch.float64) * 0.5**0.5
    errors = {
        "sinusoids": [(float(k), _error(exact, k)) for k in OFFSETS],
        "random vectors": [(float(k), _error(random, k)) for k in OFFSETS],
    }
    worst = max(error for _, error in errors["sinusoids"])
    return Finding(
        worst < 1e-4,
        f"A linear map fitted on {FITTED} positions gives PE(pos + k) of {TESTED} later ones with "
        f"a relative error of at most {worst:.1g}; of random vectors, "
        f"{errors['random vectors'][0][1]:.1f}.",
        [Chart("Error of a linear map to PE(pos + k)", "k", "relative", errors, True, True)],
        {"worst": worst},
    )


def _sinusoids(positions: Tensor) -> Tensor:
    """Return the model's own encodings, (positions, D_MODEL)."""
    return sinusoids(positions.long()[None], D_MODEL)[0].double()


def _error(table: Tensor, k: int) -> float:
    """Return the relative error of the best linear map, on positions it was not fitted to."""
    pairs = table.unflatten(1, (-1, 2)).transpose(0, 1)  # (D_MODEL / 2, positions, 2)
    blocks = torch.linalg.lstsq(pairs[:, :FITTED], pairs[:, k : FITTED + k]).solution
    start = pairs[:, FITTED : FITTED + TESTED]
    expected = pairs[:, FITTED + k : FITTED + TESTED + k]
    return float((start @ blocks - expected).norm() / expected.norm())


CLAIM = Claim(
    "For any fixed offset k, PE(pos + k) is a linear function of PE(pos).", "§3.5", experiment
)
