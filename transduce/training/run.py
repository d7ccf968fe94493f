"""A run: its folder, which recipe it belongs to, and what it remembers besides tensors."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from transduce.bundle import Bundle
from transduce.config import Recipe
from transduce.data.store import Store
from transduce.disk import whole_file
from transduce.errors import ConfigError
from transduce.recipe import differences, read_override, read_recipe, to_toml

FINISHED = "finished.json"
FREE_TO_CHANGE = {  # settings with which a run may go on that began with others
    "training.steps", "training.report_every", "training.validate_every", "training.validation_sentences",
    "training.save_every", "training.keep_checkpoints", "training.average_checkpoints", "training.average",
    "training.patience", "training.until", "training.micro_batches", "training.sharding", "training.recompute",
    "model.kernel",
}  # fmt: skip
FREE_TO_TUNE = ("p_drop", "p_drop_attention", "p_drop_activation", "kernel")  # all else is the bundle's model


@dataclass
class Standing:
    """What a run remembers besides tensors; saved in every checkpoint."""

    step: int = 0
    best: float = -math.inf  # the best validation score, more is better
    best_loss: float = math.inf  # of equal scores the one with the lower loss is better
    judged_by: str = ""  # what the scores are: bleu or loss
    best_step: int = 0
    stale: int = 0  # validations since then
    validated: int = 0  # the step of the last validation
    scores: dict[str, float] = field(default_factory=dict)  # of all validations, by step
    ended: str = ""  # why the scores end the run, if they do
    skipped: int = 0  # steps that were not finite, in all
    skipped_in_a_row: int = 0
    stopped_by: str = ""  # the signal that ended this attempt, known when all is saved
    tokenizers: list[str] = field(default_factory=list)  # fingerprints: the ids of another tokenizer mean other text

    def to_json(self) -> dict[str, Any]:
        """JSON has no infinity: what is not known yet is null."""
        return {name: None if value in (math.inf, -math.inf) else value for name, value in asdict(self).items()}

    @staticmethod
    def from_json(progress: dict[str, Any]) -> Standing:
        """Back from a checkpoint."""
        known = {item.name: progress[item.name] for item in fields(Standing) if progress.get(item.name) is not None}
        return Standing(**known)


def adopt(recipe: Recipe, bundle: Bundle, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe for fine-tuning a bundle: with its model and its tokenizer, which no override may change."""
    model = replace(bundle.recipe.model, **{name: getattr(recipe.model, name) for name in FREE_TO_TUNE})
    own = recipe.data.tokenizer
    joint = "tokenizer.model" in bundle.tokenizer_files
    tokenizer = replace(bundle.recipe.data.tokenizer, joint=joint, sampling=own.sampling, variants=own.variants)
    adopted = replace(recipe, model=model, data=replace(recipe.data, tokenizer=tokenizer))
    changed = differences(recipe, adopted)
    for name in (name for override in overrides for name in _names(*read_override(override)) if name in changed):
        raise ConfigError(
            f"{name} is {changed[name][0]}, but {changed[name][1]} in {bundle.path}, whose model and tokenizer "
            "fine-tuning keeps; leave it out"
        )
    return adopted


def _names(name: str, value: Any) -> list[str]:
    """Those of a setting, or of all in a section of them."""
    return (
        [each for key in value for each in _names(f"{name}.{key}", value[key])] if isinstance(value, dict) else [name]
    )


def fit_to_store(recipe: Recipe, store: Store) -> Recipe:
    """The recipe with the vocabulary sizes that the store's tokenizers have."""
    source, target = store.source_tokenizer.vocab_size, store.target_tokenizer.vocab_size
    joint = store.source_tokenizer is store.target_tokenizer
    if (recipe.model.source_vocab_size or recipe.model.vocab_size, recipe.model.vocab_size) == (source, target):
        return recipe
    if not joint and recipe.model.sharing == "three-way":
        raise ConfigError('data.tokenizer.joint is false, but model.sharing is "three-way"; use "two-way" or "none"')
    model = replace(recipe.model, vocab_size=target, source_vocab_size=None if joint else source)
    return replace(recipe, model=model)


def check_place(run: Path, recipe: Recipe) -> None:
    """Refuse a folder that could not be made or written, or is another recipe's, before any work is done for it."""
    there = next(place for place in (run, *run.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{run} cannot be written, because of {there}; choose another folder with --run")
    _refuse_another(run, recipe, FREE_TO_CHANGE | {"model.vocab_size", "model.source_vocab_size"})  # the store's, later


@contextmanager
def held(run: Path) -> Iterator[None]:
    """One process at a time trains in a folder. The lock is given back when the process ends, however it ends."""
    run.mkdir(parents=True, exist_ok=True)
    with (run / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process trains in {run}; wait for it, or choose another folder with --run"
            ) from None
        yield


def _refuse_another(run: Path, recipe: Recipe, free: Set[str]) -> None:
    path = run / "recipe.toml"
    if path.exists():
        changed = differences(recipe, read_recipe(path))
        refused = [name for name in changed if name not in free and not name.startswith("search.")]
        if refused:
            mine, theirs = changed[refused[0]]
            raise ConfigError(
                f"{run} was begun with {refused[0]} = {theirs}, not {mine}; choose another folder with --run"
            )


def claim(run: Path, recipe: Recipe) -> None:
    """The run's folder belongs to one recipe: another is refused, not mixed in."""
    _refuse_another(run, recipe, FREE_TO_CHANGE)
    path = run / "recipe.toml"
    with whole_file(path) as file:
        file.write(to_toml(recipe).encode())


def mark_finished(run: Path, recipe: Recipe, message: str) -> None:
    """Say that nothing is left to do for this many steps."""
    with whole_file(run / FINISHED) as file:
        file.write(json.dumps({"steps": recipe.training.steps, "message": message}).encode())


def finished(run: Path, recipe: Recipe) -> str:
    """Why the run was ended, if it was, and with no fewer steps in mind than now; a damaged record says nothing."""
    try:
        record = json.loads((run / FINISHED).read_bytes())
        return str(record["message"]) if int(record["steps"]) >= recipe.training.steps else ""
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""
