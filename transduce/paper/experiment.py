"""One row of a table as an experiment: a training run of its own, and scores of the result."""

from __future__ import annotations

import math
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from transduce.config import CorpusConfig, DataConfig, ModelConfig, Recipe
from transduce.data.inputs import read_inputs
from transduce.data.store import read_manifest
from transduce.describe import count_flops
from transduce.errors import ConfigError, DataError
from transduce.evaluation.ladder import climb
from transduce.evaluation.scores import score
from transduce.evaluation.test_set import read_sets, report_empty_references
from transduce.monitoring.hardware import hardware
from transduce.monitoring.metrics import History
from transduce.paper.budget import row_recipe
from transduce.paper.flops import count_training_flops
from transduce.paper.results import (
    Result,
    changed_settings,
    current_commit,
    find_result,
    parse_recipe,
    result_path,
    save_result,
    short,
)
from transduce.recipe import to_toml
from transduce.training.run import Run
from transduce.training.train import train
from transduce.translation.translator import Translator

BuildModel = Callable[[ModelConfig], nn.Module]
Measure = Callable[[Translator], dict[str, Any]]
LADDERS = ("base", "big")  # the rows that the paper compares with other work


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row to train: what it is called, and what is trained."""

    part: str  # such as table3
    name: str  # such as base
    recipe: Recipe
    model: BuildModel | None = None  # a baseline in place of the Transformer
    corpus: str = ""  # as the user named it
    budget: float | None = None
    measure: Measure | None = None  # what is measured instead of BLEU
    ladder: bool = False  # whether each step of §6.1 is scored, too


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all rows of a table have in common."""

    data: DataConfig
    corpus: str = ""  # as the user named it
    budget: float = 1.0
    seed: int = 1
    overrides: tuple[str, ...] = ()

    def row(self, part: str, name: str, recipe: Recipe, model: BuildModel | None = None) -> Row:
        """Return a row of this plan; with another seed, it has another name."""
        planned = row_recipe(recipe, self.data, self.budget, self.overrides)
        planned = replace(planned, training=replace(planned.training, seed=self.seed))
        return Row(
            part=part,
            name=name if self.seed == 1 else f"{name}-seed{self.seed}",
            recipe=planned,
            model=model,
            corpus=self.corpus,
            budget=self.budget,
            ladder=name in LADDERS,
        )


def choose_rows(known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the rows that a user wants, all by default; a group such as "A" is all of its rows."""
    if not wanted:
        return list(known)
    chosen: dict[str, None] = {}
    for name in wanted:
        found = [row for row in known if row == name or row.startswith(f"{name}-")]
        if not found:
            raise ConfigError(f"{name!r} is not a row; the rows are {', '.join(known)}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def run_row(row: Row, out: Path, device: str | None) -> Result | None:
    """Train and score a row, or return the result that it has already.

    Return None if training was stopped; the same command resumes it.
    """
    text = _text_fingerprint(row, out)
    done = _finished(row, out, text)
    if done is not None:
        return done
    _check_sets(row)
    say(f"{row.part} {row.name}: training for {row.recipe.training.steps:,} steps")
    folder = out / row.part / row.name
    run = train(
        row.recipe, run=folder, store=_store(row, out), device=device, model=row.model or None
    )
    if run.history.status != "finished":
        return None

    say(f"{row.part} {row.name}: scoring")
    history = run.history
    result = Result(
        part=row.part,
        row=row.name,
        numbers=_numbers(row, run, device),
        seconds=training_seconds(history),
        flops=_flops(row, history),
        commit=current_commit(),
        hardware=hardware(),
        recipe=to_toml(row.recipe),
        corpus=row.corpus,
        text=text,
        budget=row.budget,
        curves={"validation loss": [[*point] for point in history.losses()["validation"]]},
    )
    save_result(out, result)
    # Checkpoints of base take 4 GB and those of big 50; only the models of all rows fit on a disk.
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


def _store(row: Row, out: Path) -> Path:
    """Return the folder of the tokens, which all rows of the same text share."""
    return out / ("parsing.store" if row.part == "table4" else "text.store")


def _text_fingerprint(row: Row, out: Path) -> str:
    """Return a hash of a row's text. Files that the store has seen are not read again."""
    known = None
    with suppress(DataError):
        known = read_manifest(_store(row, out))["inputs"]
    return read_inputs(row.recipe.data, Path(), known).text_fingerprint


def _finished(row: Row, out: Path, text: str) -> Result | None:
    """Return the result of a row that is complete; refuse one of other text or settings."""
    done = find_result(out, row.part, row.name)
    if done is None:
        return None
    path = result_path(out, row.part, row.name)
    if done.text not in ("", text):
        raise ConfigError(
            f"{path} was measured with other text than {row.corpus} names now; use another folder "
            "with --out, or delete the file and its run"
        )
    recipe = parse_recipe(done)
    changed = changed_settings(recipe, row.recipe, is_same_text=done.text == text)
    if changed:
        name, (before, now) = next(iter(changed.items()))
        raise ConfigError(
            f"{path} was measured with {name} = {before}, not {now}; use another folder with "
            "--out, or delete the file and its run"
        )
    if done.commit != current_commit():
        say(
            f"{row.part} {row.name}: kept, from commit {short(done.commit)}; to repeat it, delete "
            f"{path} and the folder of its run"
        )
    else:
        say(f"{row.part} {row.name}: done already")
    return done


def _check_sets(row: Row) -> None:
    """Refuse sets on which the trained model could not be scored."""
    data = row.recipe.data
    for kind, corpora in (("validation", data.validation), ("test", data.test)):
        if not corpora:
            continue
        name = f"the {kind} set of {row.corpus}"
        sources, references = read_sets(corpora, data)
        if not "".join(sources).strip() or not "".join(references).strip():
            raise DataError(
                f"{name} has no sources or no references; expected sentences and their translations"
            )
        report_empty_references(references, name)


def _numbers(row: Row, run: Run, device: str | None) -> dict[str, Any]:
    """Return the scores of the final model: an average of checkpoints, as in §6.1."""
    recipe = row.recipe
    history = run.history
    # Without an average of checkpoints, the final model is that of the last validation.
    final = [*history.of("validation"), *history.of("average")][-1:]
    numbers: dict[str, Any] = {
        "steps": history.step,
        "target_tokens": sum(record["target_tokens"] for record in history.of("step")),
        "tokens_per_second": _tokens_per_second(history),
        "perplexity": final[0]["perplexity"] if final else None,
    }
    translator = Translator(run.path / "last", engine="torch", device=device, model=row.model)
    weights = translator.bundle.weights().values() if translator.bundle else ()
    numbers["parameters"] = sum(weight.numel() for weight in weights)
    if row.measure is not None:
        return numbers | row.measure(translator)
    for name, corpora in (("validation", recipe.data.validation), ("test", recipe.data.test)):
        if corpora:
            numbers[name] = _scores(translator, corpora, recipe)
    if row.ladder:
        sources, references = read_sets(recipe.data.test or recipe.data.validation, recipe.data)
        numbers["ladder"] = climb(run.path, sources, references, device=device).to_dict()["rungs"]
    return numbers


def _scores(
    translator: Translator, corpora: Sequence[CorpusConfig], recipe: Recipe
) -> dict[str, Any]:
    """Translate test sets and score them together."""
    sources, references = read_sets(corpora, recipe.data)
    hypotheses = [translation.text for translation in translator.translate(sources)]
    scores = score(hypotheses, references)
    return {
        "sentences": len(sources),
        "bleu": scores.bleu.value,
        "bleu_signature": scores.bleu.signature,
        "tokenized_bleu": scores.tokenized_bleu.value,
        "chrf": scores.chrf.value,
    }


def training_seconds(history: History) -> float:
    """Return the time of all steps, without validations and checkpoints."""
    return math.fsum(record["step_seconds"] for record in history.of("step"))


def _tokens_per_second(history: History) -> float | None:
    """Return the target tokens per second of the median report.

    Unlike a mean, it does not contain the compilation of kernels, which the first row pays for.
    """
    records = [record for record in history.of("step") if record["step_seconds"] > 0]
    speeds = [record["target_tokens"] / record["step_seconds"] for record in records]
    return statistics.median(speeds) if speeds else None


def _flops(row: Row, history: History) -> float:
    """Return the FLOPs of training; a run counts those of a Transformer of the same config."""
    if row.model is None:
        return history.flops
    own = count_training_flops(row.model, row.recipe.model)
    return history.flops * own / count_flops(row.recipe.model).training


def say(line: str) -> None:
    """Tell the user what happens."""
    print(f"transduce: {line}", file=sys.stderr, flush=True)
