"""§3.5: what happens beyond the longest length trained on, with each kind of positions."""

from __future__ import annotations

from transduce.config import Positions
from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.claims.toy_task import accuracy, small_config, train

STEPS = 2_000
LONGEST = 12
MARGIN = 0.1  # a smaller difference may be chance
TESTED = (4, 8, 12, 13, 14, 16, 20, 24)
KINDS: tuple[Positions, ...] = ("sinusoidal", "learned", "rotary")


def experiment(context: Context) -> Finding:
    """Train on short sequences and test on longer ones."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for kind in KINDS:
        config = small_config(positions=kind, max_positions=max(TESTED) + 1)
        model, _ = train(config, context.steps(STEPS), _rate, range(3, LONGEST + 1), context.device)
        curves[kind] = [(n, accuracy(model, n, context.device)) for n in TESTED]

    inside = {kind: dict(points)[LONGEST] for kind, points in curves.items()}
    beyond = {kind: dict(points)[16] for kind, points in curves.items()}
    learned = min(inside.values()) > 0.9
    parts = [f"{kind} {inside[kind]:.0%} and {beyond[kind]:.0%}" for kind in KINDS]
    return Finding(
        beyond["sinusoidal"] > beyond["learned"] + MARGIN if learned else None,
        f"Share of right tokens at the longest length trained on ({LONGEST}) and at 16: "
        f"{', '.join(parts)}. The paper only hopes that sinusoids extrapolate.",
        [Chart(f"Accuracy after training up to length {LONGEST}", "length", "", curves)],
        {"inside": inside, "beyond": beyond},
    )


def _rate(step: int) -> float:
    return 2e-3 * min(1.0, step / 200)


CLAIM = Claim(
    "Sinusoids may allow the model to extrapolate to sequences longer than those of training; "
    "learned positions have nothing to say there.",
    "§3.5",
    experiment,
)
