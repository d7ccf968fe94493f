"""`transduce paper`: run the rows of a part of the paper, or say what they would cost."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from transduce.config import DataConfig
from transduce.engines.torch import resolve_device
from transduce.errors import ConfigError
from transduce.paper import figures, table1, table2, table3, table4
from transduce.paper.budget import check_budget
from transduce.paper.claims.catalogue import CLAIMS, JUDGEMENTS, run_claim
from transduce.paper.claims.claim import Context
from transduce.paper.corpus import find_corpus
from transduce.paper.costs import cost_table
from transduce.paper.experiment import Plan, Row, choose_rows, run_row, say
from transduce.paper.reference import TABLE_1
from transduce.paper.report import FIGURES, write_page, write_report
from transduce.paper.results import save_result
from transduce.storage.disk import check_writable
from transduce.translation.translator import Translator

SIZES = table1.Sizes()


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user wants."""

    out: Path
    corpus: str | None = None  # a recipe file, the name of a corpus, or a folder of trees
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    budget: float = 1.0
    seed: int = 1
    model: Path | None = None
    tokens_per_second: float | None = None
    dry_run: bool = False
    device: str | None = None


# The options that have an effect on each part, besides --out.
_OF_TRAINING = {
    "corpus", "overrides", "rows", "budget", "seed", "tokens_per_second", "dry_run", "device",
}  # fmt: skip
_USED = {
    "table1": {"rows", "dry_run", "device"},
    "table2": _OF_TRAINING,
    "table3": _OF_TRAINING,
    "table4": _OF_TRAINING,
    "figures": {"model"},
    "claims": {"corpus", "rows", "budget", "model", "dry_run", "device"},
    "report": set[str](),
}


def run_part(part: str, options: Options) -> None:
    """Run a part of the paper: a table, the figures, the claims or the report."""
    _refuse_unused(part, options)
    check_budget(options.budget)
    _check_speed(options)
    _check_overrides(options.overrides)
    if not options.dry_run:
        check_writable(options.out, "choose another folder with --out")
    PARTS[part](options)


def _refuse_unused(part: str, options: Options) -> None:
    """Refuse an option that would change nothing."""
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name in {"out", *_USED[part]} or value == option.default:
            continue
        name = f"--{option.name.replace('_', '-')}"
        if option.name == "corpus":
            name = f"the corpus {value}"
        elif option.name == "overrides":
            name = f"the setting {value[0]}"
        raise ConfigError(f"{name} has no effect on {part}; leave it out")


def _check_speed(options: Options) -> None:
    speed = options.tokens_per_second
    if speed is None:
        return
    if not 0 < speed < math.inf:
        raise ConfigError(f"--tokens-per-second is {speed:g}; expected a speed above 0")
    if not options.dry_run:
        raise ConfigError(
            "--tokens-per-second is given without --dry-run; add --dry-run to see the cost, or "
            "leave it out to train"
        )


def _check_overrides(overrides: Sequence[str]) -> None:
    """Refuse settings that are options here.

    Rows of another seed have names of their own, and steps that are set would be those of base but
    not of big, and not scale the rest of the schedule.
    """
    options = {"training.seed": "--seed", "training.steps": "--budget"}
    for override in overrides:
        option = options.get(override.partition("=")[0].strip())
        if option:
            raise ConfigError(f"{override} is given as a setting; use {option}")


def _report(options: Options) -> None:
    for path in write_report(options.out):
        say(f"wrote {path}")


def _table1(options: Options) -> None:
    device = resolve_device(options.device)
    names = choose_rows(list(TABLE_1), options.rows)
    if options.dry_run:
        print(f"{', '.join(names)}: nothing is trained; about a minute each")
        return
    for name in names:
        say(f"table1 {name}: measuring on {device}")
        for result in table1.measure([name], device, SIZES):
            save_result(options.out, result)
    _report(options)


def _table2(options: Options) -> None:
    # Rows of equal time follow from the results of the other rows.
    plan = _plan(options)
    names = choose_rows(table2.ROWS, options.rows)
    first = table2.rows([name for name in names if name not in table2.EQUAL_TIME], plan)
    later = [name for name in names if name in table2.EQUAL_TIME]
    if options.dry_run:
        _print_costs(first, options)
        for name in later:
            print(f"{name}: as long as base")
        return
    _train(first, options)
    _train([table2.equal_time_row(name, plan, options.out) for name in later], options)


def _table3(options: Options) -> None:
    rows = table3.rows(options.rows, _plan(options))
    if options.dry_run:
        _print_costs(rows, options)
    else:
        _train(rows, options)


def _table4(options: Options) -> None:
    if options.corpus is None:
        raise ConfigError("the trees are missing; give a folder of bracketed trees")
    choose_rows([table4.ROW], options.rows)  # refuses any other
    row = table4.row(
        Path(options.corpus),
        options.out,
        budget=options.budget,
        seed=options.seed,
        overrides=options.overrides,
        dry_run=options.dry_run,
    )
    if options.dry_run:
        _print_costs([row], options)
    else:
        _train([row], options)


def _figures(options: Options) -> None:
    drawn = [*figures.plain_figures()]
    translator = _translator(options)
    if translator is None:
        say("the pictures of attention need a trained model: --model MODEL")
    else:
        drawn += figures.attention_figures(translator)
    for figure in drawn:
        path = options.out / FIGURES / figure.name
        write_page(path, figure.svg)
        say(f"wrote {path}")


def _claims(options: Options) -> None:
    """Test claims; those that need a trained model only if there is one."""
    names = choose_rows(list(CLAIMS), options.rows)
    if options.dry_run:
        print(f"{', '.join(names)}: seconds to minutes each")
        return
    translator = _translator(options)
    data = None
    if options.corpus is not None:
        data = find_corpus(options.corpus, options.out)
        if translator is not None:
            _check_languages(options.corpus, data, translator.recipe.data)
    device = resolve_device(options.device)
    context = Context(options.out, device, options.budget, translator, data)
    for name in names:
        if CLAIMS[name].needs_model and translator is None and not options.rows:
            say(f"claim {name}: left out, it needs a trained model: --model MODEL")
            continue
        result = run_claim(name, context)
        save_result(options.out, result)
        say(f"claim {name}: {JUDGEMENTS[result.numbers['holds']]}. {result.numbers['verdict']}")
    _report(options)


def _check_languages(corpus: str, data: DataConfig, model: DataConfig) -> None:
    """Refuse text that the model cannot translate."""
    if data.direction != model.direction:
        raise ConfigError(
            f"the text of {corpus} is {data.direction}, but the model translates "
            f"{model.direction}; give text in the languages of the model"
        )


def _translator(options: Options) -> Translator | None:
    """Return a translator of the user's model in torch, in which attention can be recorded."""
    if options.model is None:
        return None
    return Translator(options.model, engine="torch", device="cpu")


def _plan(options: Options) -> Plan:
    corpus = _corpus(options)
    return Plan(
        data=find_corpus(corpus, options.out, fetch=not options.dry_run),
        corpus=corpus,
        budget=options.budget,
        seed=options.seed,
        overrides=options.overrides,
    )


def _corpus(options: Options) -> str:
    if options.corpus is None:
        raise ConfigError(
            "the text is missing; give a recipe file, or the name of a corpus such as wmt14-en-de"
        )
    return options.corpus


def _print_costs(rows: Sequence[Row], options: Options) -> None:
    print(cost_table(rows, options.out, options.tokens_per_second).to_text())


def _train(rows: Sequence[Row], options: Options) -> None:
    """Train rows one after the other, then write the report."""
    for row in rows:
        if run_row(row, options.out, options.device) is None:
            say(f"{row.part} {row.name} was stopped; run the same command again to continue")
            sys.exit(1)  # so that a script notices
    if rows:
        _report(options)


PARTS: dict[str, Callable[[Options], None]] = {
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    "table4": _table4,
    "figures": _figures,
    "claims": _claims,
    "report": _report,
}
