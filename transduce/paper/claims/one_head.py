"""§6.2: one head is worse than eight, and too many heads are worse as well."""

from __future__ import annotations

from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.reference import TABLE_3
from transduce.paper.results import load_results

ROWS = {"A-h1": 1, "A-h4": 4, "base": 8, "A-h16": 16, "A-h32": 32}


def experiment(context: Context) -> Finding:
    """Compare the rows (A) of Table 3, which `transduce paper table3` trains."""
    results = load_results(context.out, "table3")
    found = {name: results[name] for name in ROWS if name in results}
    curves = {"paper": [(float(h), TABLE_3[name].bleu) for name, h in ROWS.items()]}
    ours = []
    for name, result in found.items():
        ours.append((float(ROWS[name]), float(result.numbers["validation"]["bleu"])))
    curves["ours"] = ours
    chart = Chart("BLEU by the number of heads", "h", "BLEU", curves, log_x=True)
    if not {"base", "A-h1"} <= found.keys():
        return Finding(None, "The rows base and A-h1 of Table 3 are missing.", [chart])
    bleu = dict(ours)
    papers = dict(curves["paper"])
    best = max(bleu, key=lambda h: bleu[h])
    gaps = {h: bleu[best] - bleu[h] for h in (1.0, 32.0) if h in bleu}
    parts = []
    for h, gap in gaps.items():
        papers_gap = max(papers.values()) - papers[h]
        parts.append(f"h={h:g} is {gap:.1f} BLEU below it (in the paper {papers_gap:.1f})")
    return Finding(
        all(gap > 0 for gap in gaps.values()),
        f"h={best:g} is best; {' and '.join(parts)}.",
        [chart],
        {"gaps": {f"h={h:g}": gap for h, gap in gaps.items()}},
    )


CLAIM = Claim(
    "Single-head attention is 0.9 BLEU worse than the best setting; quality also drops off with "
    "too many heads.",
    "§6.2",
    experiment,
)
