"""§6.2: one head is worse than eight, and too many heads are worse as well."""

from __future__ import annotations

from transduce.paper import table3
from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.reference import TABLE_3

ROWS = {"A-h1": 1, "A-h4": 4, "base": 8, "A-h16": 16, "A-h32": 32}


def experiment(context: Context) -> Finding:
    """Compare the rows (A) of Table 3, which `transduce paper table3` trains.

    Rows with another budget, text or other settings than base are left out. A gap that is not
    larger than that between seeds of base may be chance, so it is not judged.
    """
    results = table3.comparable_with_base(table3.known_results(context.out))
    chance = table3.seed_spread(results) or 0.0
    found = {name: results[name] for name in ROWS if name in results}
    curves = {"paper": [(float(h), TABLE_3[name].bleu) for name, h in ROWS.items()]}
    ours = []
    for name, result in found.items():
        ours.append((float(ROWS[name]), float(result.numbers["validation"]["bleu"])))
    curves["ours"] = ours
    chart = Chart("BLEU by the number of heads", "h", "BLEU", curves, log_x=True)
    if not {"base", "A-h1"} <= found.keys():
        return Finding(
            None, "The rows base and A-h1 of Table 3 are missing, or not comparable.", [chart]
        )
    bleu = dict(ours)
    papers = dict(curves["paper"])
    best = max(bleu, key=lambda h: bleu[h])
    gaps = {h: bleu[best] - bleu[h] for h in (1.0, 32.0) if h in bleu}
    parts = []
    for h, gap in gaps.items():
        papers_gap = max(papers.values()) - papers[h]
        parts.append(f"h={h:g} is {gap:.1f} BLEU below it (in the paper {papers_gap:.1f})")
    smallest = min(gaps.values())
    holds = smallest > 0
    verdict = f"h={best:g} is best; {' and '.join(parts)}."
    if chance:
        verdict += f" Seeds of base are {chance:.1f} apart."
    if 32.0 not in gaps:
        verdict += " The row A-h32 is missing."
    undecided = holds and (smallest <= chance or 32.0 not in gaps)
    return Finding(
        None if undecided else holds,
        verdict,
        [chart],
        {"gaps": {f"h={h:g}": gap for h, gap in gaps.items()}},
    )


CLAIM = Claim(
    "Single-head attention is 0.9 BLEU worse than the best setting; quality also drops off with "
    "too many heads.",
    "§6.2",
    experiment,
)
