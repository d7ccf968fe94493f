"""All claims by name, how they are run, and what the report says of them."""

from __future__ import annotations

import time
from pathlib import Path

from transduce.monitoring.hardware import hardware
from transduce.paper.claims import (
    head_distance,
    head_removal,
    linear_positions,
    longer_sequences,
    one_head,
    pronoun,
    scale,
    step_cost,
    warmup,
)
from transduce.paper.claims.claim import Chart, Claim, Context
from transduce.paper.page import Figure, Section, Table
from transduce.paper.results import Result, current_commit, load_results, remarks

PART = "claims"
CLAIMS: dict[str, Claim] = {
    "scale": scale.CLAIM,
    "linear-positions": linear_positions.CLAIM,
    "longer-sequences": longer_sequences.CLAIM,
    "step-cost": step_cost.CLAIM,
    "warmup": warmup.CLAIM,
    "one-head": one_head.CLAIM,
    "head-distance": head_distance.CLAIM,
    "head-removal": head_removal.CLAIM,
    "pronoun": pronoun.CLAIM,
}
JUDGEMENTS = {True: "holds", False: "does not hold here", None: "not judged"}


def run_claim(name: str, context: Context) -> Result:
    """Run the experiment of a claim."""
    start = time.perf_counter()
    finding = CLAIMS[name].experiment(context)
    return Result(
        part=PART,
        row=name,
        numbers=finding.to_json(),
        seconds=time.perf_counter() - start,
        commit=current_commit(),
        hardware=hardware(),
        budget=context.effort,
    )


def section(out: Path, commit: str) -> Section:
    """Return what is known so far of the claims."""
    results = load_results(out, PART)
    lines = []
    figures = []
    for name, claim in CLAIMS.items():
        result = results.get(name)
        lines.append(_line(name, claim, result, commit))
        charts = result.numbers["charts"] if result else []
        for number, chart in enumerate(charts, start=1):
            drawn = Chart(**chart)
            figures.append(Figure(f"claim-{name}-{number}.svg", drawn.title, drawn.svg()))
    head = ("claim", "statement", "source", "verdict", "what was found", "note")
    return Section("Claims", (), [Table(head, lines)], figures)


def _line(name: str, claim: Claim, result: Result | None, commit: str) -> list[str]:
    if result is None:
        return [name, claim.statement, claim.source, "", "", "missing"]
    is_partial = result.budget not in (None, 1)
    note = remarks(result, commit, [f"budget {result.budget:g}"] if is_partial else ())
    judgement = JUDGEMENTS[result.numbers["holds"]]
    return [name, claim.statement, claim.source, judgement, result.numbers["verdict"], note]
