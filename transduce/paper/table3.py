"""Table 3: variations of the Transformer, trained on the same text and measured beside base."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from transduce.describe import count_parameters
from transduce.paper import reference
from transduce.paper.budget import scaled
from transduce.paper.chart import dot_rows
from transduce.paper.experiment import Plan, Row, choose_rows
from transduce.paper.page import Figure, Section, Table
from transduce.paper.results import (
    Result,
    decimal,
    load_results,
    millions,
    other_settings,
    remarks,
    signatures,
    unlike,
)
from transduce.presets import BASE, TABLE_3
from transduce.recipe import differences

PART = "table3"
SEED = re.compile(r"-seed\d+$")


def rows(names: Sequence[str], plan: Plan) -> list[Row]:
    """Return the rows of these names, by default all."""
    return [plan.row(PART, name, TABLE_3[name]) for name in choose_rows(list(TABLE_3), names)]


def section(out: Path, commit: str) -> Section:
    """Return what is known so far of Table 3."""
    results = known_results(out)
    base = results.get("base")
    comparable = comparable_with_base(results)
    lines = [_line(name, results.get(name), base, commit) for name in TABLE_3]
    for name, result in results.items():
        if SEED.search(name):
            lines.append(_line(name, result, base, commit))
    head = ("row", "change", "PPL", "paper", "BLEU", "paper", "difference from base", "paper's",
            "parameters (M)", "paper", "speed per FLOP", "note")  # fmt: skip
    missing = [name for name in TABLE_3 if name not in results]
    paragraphs = [
        "Perplexity per token and sacreBLEU on the validation set, from the average of the last "
        "checkpoints, beam search and length penalty of §6.1. The paper's BLEU is tokenized "
        "(newstest2013); differences from base can be compared, absolute values cannot. The "
        "paper's parameters fit a vocabulary of 41,000, and of 37,000 in big. The speed is that of "
        "training in FLOPs per second, as a share of base's.",
        *signatures(result.numbers["validation"] for result in results.values()),
        *_spread(comparable),
        *_agreement(comparable),
    ]
    if missing:
        paragraphs.append(f"Not measured yet: {', '.join(missing)}.")
    title = "Table 3: variations of the Transformer"
    return Section(title, paragraphs, [Table(head, lines)], _figures(comparable))


def known_results(out: Path) -> dict[str, Result]:
    """Return the results of all rows; a file may have the name of none that this version knows."""
    found = load_results(out, PART)
    return {name: result for name, result in found.items() if SEED.sub("", name) in TABLE_3}


def comparable_with_base(results: Mapping[str, Result]) -> dict[str, Result]:
    """Return base, and the results that differ from it only in what their rows change."""
    base = results.get("base")
    if base is None:
        return {}
    return {name: result for name, result in results.items() if not _unlike(result, base)}


def seed_spread(results: Mapping[str, Result]) -> float | None:
    """Return how far the seeds of base are apart in BLEU; None if there is only one."""
    scores = _seed_scores(results)
    return max(scores) - min(scores) if len(scores) > 1 else None


def _seed_scores(results: Mapping[str, Result]) -> list[float]:
    return [_bleu(result) for name, result in results.items() if SEED.sub("", name) == "base"]


def _line(name: str, result: Result | None, base: Result | None, commit: str) -> list[str]:
    row = SEED.sub("", name)
    paper = reference.TABLE_3[row]
    papers_difference = paper.bleu - reference.TABLE_3["base"].bleu

    # Ours, as far as it is measured.
    perplexity = bleu = difference = speed = ""
    note = "missing"
    parameters = count_parameters(TABLE_3[row].model)
    if result is not None:
        perplexity = decimal(result.numbers["perplexity"])
        bleu = f"{_bleu(result):.1f}"
        parameters = result.numbers["parameters"]
        note = remarks(result, commit, _unlike(result, base) if base else ())
        if base is not None and name != "base":
            difference = f"{_bleu(result) - _bleu(base):+.1f}"
            speed = f"{_speed(result) / _speed(base):.2f}"
    return [
        name,
        paper.change,
        perplexity,
        f"{paper.perplexity:.2f}",
        bleu,
        f"{paper.bleu:.1f}",
        difference,
        f"{papers_difference:+.1f}" if row != "base" else "",
        millions(parameters),
        f"{paper.parameters:.0f}" if paper.parameters else "",
        speed,
        note,
    ]


def _unlike(result: Result, base: Result) -> list[str]:
    """Return why a row cannot be compared with base: its budget, its text or other settings."""
    reasons = unlike(result, base)
    if result.budget is None or result.budget != base.budget:
        return reasons  # settings differ with the budget

    # Settings that differ although the row does not change them.
    row = TABLE_3[SEED.sub("", result.row)]
    expected = differences(scaled(row, result.budget), scaled(BASE, result.budget))
    return reasons + other_settings(result, base, expected)


def _figures(results: Mapping[str, Result]) -> list[Figure]:
    """Return a plot of the differences from base: the paper's and ours for each row."""
    if "base" not in results:
        return []
    base = _bleu(results["base"])
    differences = {}
    for name in (*reference.TABLE_3, *filter(SEED.search, results)):
        if name in results and name != "base":
            paper = reference.TABLE_3[SEED.sub("", name)].bleu - reference.TABLE_3["base"].bleu
            differences[name] = (paper, _bleu(results[name]) - base)
    title = "BLEU difference from base"
    svg = dot_rows(title, differences, ("paper", "ours"), x_label="BLEU")
    return [Figure("table3-differences.svg", title, svg)]


def _speed(result: Result) -> float:
    """Return the FLOPs per second of training."""
    numbers = result.numbers
    return (result.flops or 0.0) / numbers["target_tokens"] * numbers["tokens_per_second"]


def _bleu(result: Result) -> float:
    return float(result.numbers["validation"]["bleu"])


def _spread(results: Mapping[str, Result]) -> list[str]:
    """Return how far the seeds of base are apart, which a difference must exceed to mean much."""
    scores = _seed_scores(results)
    if not scores:
        return []
    spread = seed_spread(results)
    if spread is None:
        return ["One seed of base only: how far chance alone moves BLEU is not known."]
    return [
        f"{len(scores)} seeds of base are {spread:.1f} BLEU apart; smaller differences may be "
        "chance."
    ]


def _agreement(results: Mapping[str, Result]) -> list[str]:
    """Return which differences from base have the paper's sign, as far as they exceed chance."""
    if "base" not in results:
        return []
    base = _bleu(results["base"])
    chance = seed_spread(results) or 0.0
    agreeing = 0
    other: list[str] = []
    undecided: list[str] = []
    for name, paper in reference.TABLE_3.items():
        papers_difference = paper.bleu - reference.TABLE_3["base"].bleu
        if name not in results or not papers_difference:
            continue
        difference = _bleu(results[name]) - base
        if abs(difference) <= chance:
            undecided.append(name)
        elif difference * papers_difference > 0:
            agreeing += 1
        else:
            other.append(f"{name} ({difference:+.1f}, in the paper {papers_difference:+.1f})")

    count = agreeing + len(other) + len(undecided)
    if not count:
        return []
    line = f"{agreeing} of {count} rows differ from base in the paper's direction"
    if other:
        line += f"; not: {', '.join(other)}"
    if undecided:
        line += f"; no more than by chance: {', '.join(undecided)}"
    lines = [f"{line}."]
    budget = results["base"].budget or 1.0
    if other and budget < 1:
        lines.append(
            f"With {budget:g} of the paper's steps, models are compared earlier in their training. "
            "Depth and dropout slow learning down at first and pay off late, so that a row with "
            "less of them may still be ahead here."
        )
    return lines
