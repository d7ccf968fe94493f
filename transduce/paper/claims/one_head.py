"""§6.2: one head is worse than eight, and too many heads are worse as well."""

from __future__ import annotations

from transduce.paper import table3
from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.reference import TABLE_3
from transduce.paper.results import parse_recipe

ROWS = {"A-h1": 1, "A-h4": 4, "base": 8, "A-h16": 16, "A-h32": 32}


def experiment(context: Context) -> Finding:
    """Compare the rows (A) of Table 3, which `transduce paper table3` trains.

    Rows with another budget, text or other settings than base are left out. A gap that is not
    larger than that between seeds of base may be chance, so it is not judged.
    """
    results = table3.comparable_with_base(table3.known_results(context.out))
    chance = table3.seed_spread(results) or 0.0
    found = {name: results[name] for name in ROWS if name in results}
    bleu = {name: float(result.numbers["validation"]["bleu"]) for name, result in found.items()}
    heads = dict(ROWS)
    if "base" in found:
        heads["base"] = parse_recipe(found["base"]).model.h  # a setting may have changed it
    curves = {
        "paper": [(float(h), TABLE_3[name].bleu) for name, h in ROWS.items()],
        "ours": sorted((float(heads[name]), value) for name, value in bleu.items()),
    }
    chart = Chart("BLEU by the number of heads", "h", "BLEU", curves, log_x=True)
    if not {"base", "A-h1"} <= found.keys():
        return Finding(
            None, "The rows base and A-h1 of Table 3 are missing, or not comparable.", [chart]
        )
    best = max(bleu, key=lambda name: bleu[name])
    gaps = {name: bleu[best] - bleu[name] for name in ("A-h1", "A-h32") if name in bleu}
    papers_best = max(TABLE_3[name].bleu for name in ROWS)
    parts = []
    for name, gap in gaps.items():
        papers_gap = papers_best - TABLE_3[name].bleu
        parts.append(f"h={heads[name]} is {gap:.1f} BLEU below it (in the paper {papers_gap:.1f})")
    smallest = min(gaps.values())
    holds = smallest > 0
    verdict = f"h={heads[best]} is best; {' and '.join(parts)}."
    if chance:
        verdict += f" Seeds of base are {chance:.1f} apart."
    if "A-h32" not in gaps:
        verdict += " The row A-h32 is missing."
    undecided = holds and (smallest <= chance or "A-h32" not in gaps)
    return Finding(
        None if undecided else holds,
        verdict,
        [chart],
        {"gaps": {f"h={heads[name]}": gap for name, gap in gaps.items()}},
    )


CLAIM = Claim(
    "Single-head attention is 0.9 BLEU worse than the best setting; quality also drops off with "
    "too many heads.",
    "§6.2",
    experiment,
)
