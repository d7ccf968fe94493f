"""Table 2: the Transformer beside a recurrent and a convolutional model, in BLEU and in FLOPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transduce.config import ModelConfig
from transduce.errors import ConfigError
from transduce.monitoring.terminal import clock
from transduce.paper import table3
from transduce.paper.baselines.convolutional import ConvolutionalModel
from transduce.paper.baselines.recurrent import RecurrentModel
from transduce.paper.budget import changed_recipe
from transduce.paper.chart import line_chart
from transduce.paper.experiment import BuildModel, Plan, Row
from transduce.paper.flops import estimated_flops
from transduce.paper.page import Figure, Section, Table
from transduce.paper.reference import TABLE_2
from transduce.paper.results import (
    Result,
    decimal,
    find_result,
    load_results,
    millions,
    other_settings,
    remarks,
    signatures,
    unlike,
)
from transduce.paper.table3 import SEED
from transduce.presets import BASE, BIG

PART = "table2"

# A recurrence needs its gradient clipped.
CLIPPED = replace(BASE, training=replace(BASE.training, clip_norm=1.0))


@dataclass(frozen=True)
class Rival:
    """A model with about as many parameters as base; its sizes are relative to base's."""

    build: BuildModel
    layers: float
    width: float

    def sizes(self, base: ModelConfig) -> list[str]:
        """Return its sizes as settings."""
        layers = max(1, round(self.layers * base.N))
        width = 2 * round(self.width * base.d_model / 2)  # even, as the settings expect
        return [f"model.N={layers}", f"model.d_model={width}"]


RIVALS = {
    "recurrent": Rival(RecurrentModel, layers=2 / 3, width=11 / 8),
    "convolutional": Rival(ConvolutionalModel, layers=2, width=1),
}
# The same models, trained for as long as base was; by name, the model.
EQUAL_TIME = {f"equal-time-{name}": name for name in RIVALS}
ROWS = ["base", "big", *RIVALS, *EQUAL_TIME]
# The settings in which rivals differ from base, and those in which equal-time rows do, too.
OF_RIVALS = ("model.N", "model.d_model", "training.clip_norm")
OF_TIME = tuple(
    f"training.{name}"
    for name in ("steps", "warmup_steps", "save_every", "early_save_every", "validate_every",
                 "report_every")
)  # fmt: skip


def rows(names: Sequence[str], plan: Plan) -> list[Row]:
    """Return the rows of these names; base and big are those of Table 3."""
    chosen = []
    for name in names:
        if name in RIVALS:
            chosen.append(_rival_row(name, name, plan))
        else:
            chosen.append(plan.row(table3.PART, name, BASE if name == "base" else BIG))
    return chosen


def _rival_row(name: str, kind: str, plan: Plan) -> Row:
    """Return a row of a rival, which gets smaller where the user makes base smaller."""
    rival = RIVALS[kind]
    base = changed_recipe(BASE, plan.data, plan.budget, plan.overrides).model
    sized = replace(plan, overrides=(*plan.overrides, *rival.sizes(base)))
    return sized.row(PART, name, CLIPPED, rival.build)


def equal_time_row(name: str, plan: Plan, out: Path) -> Row:
    """Return a baseline with as many steps as it can take while base trains."""
    kind = EQUAL_TIME[name]
    seed = "" if plan.seed == 1 else f"-seed{plan.seed}"
    base = find_result(out, table3.PART, f"base{seed}")
    measured = find_result(out, PART, f"{kind}{seed}")
    if base is None or measured is None:
        raise ConfigError(
            f"{name} needs the speeds of base and {kind}, which are not measured in {out}; add "
            f"these rows: --rows base {kind} {name} --seed {plan.seed}"
        )
    share = measured.numbers["tokens_per_second"] / base.numbers["tokens_per_second"]
    longer = replace(plan, budget=plan.budget * share)
    return replace(_rival_row(name, kind, longer), budget=plan.budget)


def section(out: Path, commit: str) -> Section:
    """Return what is known so far of Table 2."""
    ours = _results(out)
    base = ours.get("base")
    others = [name for name in ours if name not in ROWS]  # of other seeds
    lines = [_line(name, ours.get(name), base, commit) for name in (*ROWS, *others)]
    head = ("model", "sacreBLEU", "tokenized BLEU", "perplexity", "parameters (M)",
            "target tokens", "time", "FLOPs, counted", "FLOPs, paper's method",
            "note")  # fmt: skip
    papers = [
        [name, "" if system.bleu is None else f"{system.bleu:.2f}", _flops(system.flops)]
        for name, system in TABLE_2.items()
    ]
    paragraphs = [
        "BLEU of the test set (of the validation set where there is no test set), perplexity of "
        "the validation set. All models have the same text, tokenizer, search and, but for "
        "equal-time, the same number of target tokens; equal-time models train as long as base. "
        "The paper's method multiplies the time by the speed of the GPU, here its peak in bf16, "
        "and is empty on a CPU. The paper's BLEU is tokenized.",
        *signatures(map(_scores, ours.values())),
        *_verdict(ours),
    ]
    tables = [Table(head, lines), Table(("paper", "BLEU (En-De)", "FLOPs"), papers)]
    tables += [_ladder(name, result) for name, result in ours.items() if _has_ladder(result)]
    return Section("Table 2: rivals", paragraphs, tables, _figures(ours))


def _results(out: Path) -> dict[str, Result]:
    of_table3 = load_results(out, table3.PART)
    names = [name for name in of_table3 if SEED.sub("", name) in ("base", "big")]
    shared = {name: of_table3[name] for name in names}
    return shared | load_results(out, PART)


def _line(name: str, result: Result | None, base: Result | None, commit: str) -> list[str]:
    if result is None:
        return [name, *[""] * 8, "missing"]
    numbers = result.numbers
    scores = _scores(result)
    return [
        name,
        f"{scores['bleu']:.1f}",
        f"{scores['tokenized_bleu']:.1f}",
        decimal(numbers["perplexity"]),
        millions(numbers["parameters"]),
        f"{numbers['target_tokens']:,}",
        clock(result.seconds),
        _flops(result.flops),
        _flops(estimated_flops(result.seconds, result.hardware)),
        remarks(result, commit, _unlike(name, result, base)),
    ]


def _unlike(name: str, result: Result, base: Result | None) -> list[str]:
    """Return why a row cannot be compared with base; Table 3 says it of base and big."""
    reasons = unlike(result, base)
    row = SEED.sub("", name)
    if base is None or row not in (*RIVALS, *EQUAL_TIME) or result.budget != base.budget:
        return reasons
    expected = (*OF_RIVALS, *OF_TIME) if row in EQUAL_TIME else OF_RIVALS
    return reasons + other_settings(result, base, expected)


def _scores(result: Result) -> Mapping[str, float]:
    scores: Mapping[str, float] = result.numbers.get("test") or result.numbers["validation"]
    return scores


def _has_ladder(result: Result) -> bool:
    return "ladder" in result.numbers


def _ladder(name: str, result: Result) -> Table:
    """Return what each step of §6.1 adds to the BLEU of a row."""
    lines = []
    for rung in result.numbers["ladder"]:
        gain = "" if rung["gain"] is None else f"{rung['gain']:+.2f}"
        lines.append([rung["name"], f"{rung['score']['value']:.2f}", gain])
    return Table((f"{name}, step by step", "BLEU", "gain"), lines)


def _flops(number: float | None) -> str:
    return f"{number:.1e}" if number else ""


def _verdict(ours: Mapping[str, Result]) -> list[str]:
    """Return whether the paper's central claim holds: better, at a fraction of the cost."""
    if "base" not in ours:
        return []
    base = ours["base"]
    lines = []
    for name in (*RIVALS, *EQUAL_TIME):
        if name in ours and not _unlike(name, ours[name], base):
            gain = _scores(base)["bleu"] - _scores(ours[name])["bleu"]
            cost = (base.flops or 0) / (ours[name].flops or 1)
            order = "more" if gain >= 0 else "less"
            lines.append(
                f"Base has {abs(gain):.1f} BLEU {order} than {name}, with {cost:.2f} times its "
                "FLOPs."
            )
    return lines


def _figures(ours: Mapping[str, Result]) -> list[Figure]:
    """Return plots of the rows that can be compared with base."""
    base = ours.get("base")
    losses = {}
    costs = {}
    for name, result in ours.items():
        if not _unlike(name, result, base):
            losses[name] = [(x, y) for x, y in result.curves.get("validation loss", [])]
            costs[name] = [(result.flops or 0.0, _scores(result)["bleu"])]
    if not losses:
        return []
    loss = line_chart("Validation loss", losses, x_label="step", y_label="nats per token")
    title = "BLEU and training cost"
    cost = line_chart(title, costs, x_label="FLOPs", y_label="BLEU", log_x=True)
    return [
        Figure("table2-loss.svg", "Validation loss", loss),
        Figure("table2-cost.svg", title, cost),
    ]
