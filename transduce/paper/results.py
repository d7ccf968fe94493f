"""Results on disk: one JSON file for each row of a table, with all that is needed to judge it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from transduce.config import CorpusConfig, Recipe
from transduce.errors import ConfigError, DataError
from transduce.monitoring.software import commit, version
from transduce.paper.result_format import check_result
from transduce.recipe import differences, update_recipe
from transduce.storage.disk import whole_file

VERSION = 1  # of the JSON


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one row of a table or one claim has measured."""

    part: str  # such as table3
    row: str  # such as base
    numbers: dict[str, Any]  # what was measured, by name
    seconds: float  # of training or measuring
    commit: str
    hardware: dict[str, Any]
    flops: float | None = None  # of training, counted
    recipe: str = ""  # all settings of a training run, as TOML
    corpus: str = ""  # as the user named it
    text: str = ""  # a hash of the text; results of older versions have none
    budget: float | None = None  # the share of the paper's steps
    curves: dict[str, list[list[float]]] = field(default_factory=dict)  # points by name


def result_path(out: Path, part: str, row: str) -> Path:
    """Return where the result of a row is stored."""
    return out / part / f"{row}.json"


def save_result(out: Path, result: Result) -> Path:
    """Write a result, completely or not at all."""
    path = result_path(out, result.part, result.row)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"version": VERSION, **asdict(result)}
    with whole_file(path) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode())
    return path


def load_result(path: Path) -> Result:
    """Read one result."""
    try:
        content = json.loads(path.read_bytes())
        version = content.pop("version", None) if isinstance(content, dict) else None
        if version != VERSION:
            raise ValueError(f"its format is {version}, expected {VERSION}")
        check_result(content, path.parent.name, path.stem)
        return Result(**content)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as a result ({error}); mend it, or delete it and run its row "
            "again"
        ) from None


def find_result(out: Path, part: str, row: str) -> Result | None:
    """Return the result of a row, or None if it has none yet."""
    path = result_path(out, part, row)
    return load_result(path) if path.is_file() else None


def load_results(out: Path, part: str) -> dict[str, Result]:
    """Return all results of a table by row, in the order of their names."""
    paths = {path.stem: path for path in (out / part).glob("*.json")}
    return {row: load_result(paths[row]) for row in sorted(paths)}


def parse_recipe(result: Result) -> Recipe:
    """Return the recipe of a result."""
    try:
        return update_recipe(Recipe(), tomllib.loads(result.recipe))
    except (ValueError, ConfigError) as error:
        raise DataError(
            f"the result {result.part}/{result.row}.json has a recipe that cannot be read "
            f"({error}); mend it, or delete the file and run its row again"
        ) from None


def changed_settings(
    recipe: Recipe, other: Recipe, *, is_same_text: bool
) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two recipes differ, as `differences` does.

    Where the same text lies does not matter.
    """
    if is_same_text:
        return differences(_without_paths(recipe), _without_paths(other))
    return differences(recipe, other)


def _without_paths(recipe: Recipe) -> Recipe:
    """Return the recipe with nameless files in all of its corpora."""
    data = replace(
        recipe.data,
        corpora=_nameless(recipe.data.corpora),
        validation=_nameless(recipe.data.validation),
        test=_nameless(recipe.data.test),
    )
    return replace(recipe, data=data)


def _nameless(corpora: Sequence[CorpusConfig]) -> tuple[CorpusConfig, ...]:
    return tuple(replace(corpus, source=("",), target=()) for corpus in corpora)


def decimal(number: float | None) -> str:
    """Return a number with two decimals, or nothing where it could not be computed."""
    return "" if number is None else f"{number:.2f}"


def millions(number: float) -> str:
    """Return a number of parameters in millions, with two digits at least."""
    return f"{number / 1e6:.0f}" if number >= 1e7 else f"{number / 1e6:.2g}"


def signatures(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return on how many sentences BLEU was measured, and its signature."""
    found = {f"{score['sentences']:,} sentences, {score['bleu_signature']}" for score in scores}
    return [f"sacreBLEU: {'; '.join(sorted(found))}."] if found else []


def remarks(result: Result, commit: str, reasons: Sequence[str] = ()) -> str:
    """Return what distinguishes a result from others: its code, and why it is unlike base."""
    parts = []
    if result.commit != commit:
        parts.append(f"commit {short(result.commit)}")
    return "; ".join([*parts, *reasons])


def unlike(result: Result, base: Result | None) -> list[str]:
    """Return why a result cannot be compared with that of base: its budget or its text."""
    reasons = []
    if base is not None and result.budget != base.budget:
        reasons.append(f"budget {result.budget:g}, base has {base.budget:g}")
    if base is not None and not has_same_text(result, base):
        reasons.append(f"text {text_name(result)}, base has {text_name(base)}")
    return reasons


def other_settings(result: Result, base: Result, expected: Collection[str]) -> list[str]:
    """Return the settings that differ from base's, besides those that are expected to, in words."""
    found = changed_settings(
        parse_recipe(result),
        parse_recipe(base),
        is_same_text=bool(result.text) and result.text == base.text,
    )
    others = found.keys() - {*expected, "training.learning_rate", "training.seed"}
    return [f"other settings than base: {', '.join(sorted(others))}"] if others else []


def has_same_text(result: Result, other: Result) -> bool:
    """Return whether two results have the same text; of older ones, only its name is known."""
    if result.text and other.text:
        return result.text == other.text
    return result.corpus == other.corpus


def text_name(result: Result) -> str:
    """Return the name of a result's text, with the beginning of its hash."""
    return f"{result.corpus} ({result.text[:7]})" if result.text else result.corpus


def short(commit: str) -> str:
    """Return a commit with seven digits; "+" marks uncommitted changes."""
    if re.fullmatch(r"[0-9a-f]{40}\+?", commit):
        return commit[:7] + commit[40:]
    return commit


def current_commit() -> str:
    """Return the commit of the running code, or its version outside of a repository."""
    return commit() or f"version {version()}"
