"""§3.2.1: dot products grow with d_k, and without the scale the softmax loses its gradient."""

from __future__ import annotations

import torch

from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.layer_measures import exponent

SIZES = (1, 4, 16, 64, 256, 1024)  # of d_k
KEYS = 64
QUERIES = 512


def experiment(context: Context) -> Finding:
    """Draw queries and keys of variance 1, as the paper's footnote does."""
    generator = torch.Generator().manual_seed(1)
    variances = []
    gradients: dict[str, list[tuple[float, float]]] = {"scaled": [], "not scaled": []}
    for d_k in SIZES:
        q = torch.randn(QUERIES, d_k, generator=generator)
        k = torch.randn(KEYS, d_k, generator=generator)
        scores = q @ k.T
        variances.append((float(d_k), float(scores.var())))
        gradients["scaled"].append((d_k, _gradient(scores / d_k**0.5)))
        gradients["not scaled"].append((d_k, _gradient(scores)))

    power = exponent(variances)
    left = gradients["not scaled"][-1][1] / gradients["scaled"][-1][1]
    largest = SIZES[-1]
    return Finding(
        abs(power - 1) < 0.1 and left < 0.2,
        f"The variance of q.k grows as d_k^{power:.2f}. At d_k = {largest} the softmax without "
        f"the scale has {left:.1%} of the gradient that it has with it.",
        [
            Chart("Variance of q.k", "d_k", "", {"variance": variances}, True, True),
            Chart("Gradient of the softmax", "d_k", "median norm", gradients, True, True),
        ],
        {"exponent": power, "gradient_left": left},
    )


def _gradient(scores: torch.Tensor) -> float:
    """Return the norm of the softmax's Jacobian, diag(p) - p p^T, of the median query."""
    p = scores.double().softmax(dim=-1)
    jacobian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    return float(jacobian.norm(dim=(-2, -1)).median())


CLAIM = Claim(
    "Dot products of queries and keys have a variance that grows with d_k; without the factor "
    "1/sqrt(d_k) the softmax has extremely small gradients.",
    "§3.2.1",
    experiment,
)
