"""§5.3 and its readers: post-norm needs warm-up, pre-norm does not (Xiong et al., 2020)."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.claims.toy_task import small_config, train

STEPS = 400
RATE = 2e-3
LAYERS = 6


def experiment(context: Context) -> Finding:
    """Train deep models with and without warm-up, in both orders of the norm."""
    steps = context.steps(STEPS)
    curves: dict[str, list[tuple[float, float]]] = {}
    final: dict[str, float] = {}
    for order in ("post", "pre"):
        for name, warmup in (("warm-up", max(1, steps // 4)), ("no warm-up", 1)):
            config = small_config(N=LAYERS, norm_order=order)
            label = f"{order}-norm, {name}"
            _, curves[label] = train(config, steps, _rate(warmup), range(4, 11), context.device)
            final[label] = statistics.fmean(loss for _, loss in curves[label][-5:])

    harm = {
        order: final[f"{order}-norm, no warm-up"] - final[f"{order}-norm, warm-up"]
        for order in ("post", "pre")
    }
    learned = min(final.values()) < 1.0
    return Finding(
        harm["post"] > 0.2 and harm["pre"] < 0.2 if learned else None,
        f"Without warm-up the final loss changes by {harm['post']:+.2f} with post-norm (from "
        f"{final['post-norm, warm-up']:.2f}) and by {harm['pre']:+.2f} with pre-norm (from "
        f"{final['pre-norm, warm-up']:.2f}).",
        [Chart("Training loss, writing backwards", "step", "nats per token", curves)],
        {"final": final},
    )


def _rate(warmup: int) -> Callable[[int], float]:
    return lambda step: RATE * min(1.0, step / warmup)


CLAIM = Claim(
    "The Transformer as published (post-norm) needs a warm-up of the learning rate; with pre-norm "
    "it does not.",
    "§5.3; Xiong et al., 2020",
    experiment,
)
