"""A run's folder: which recipe it belongs to, what it was started from, and whether it is finished."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.config import Recipe
from transduce.data.store import Store
from transduce.errors import CheckpointError, ConfigError
from transduce.monitoring.metrics import FILE_NAME
from transduce.recipe import differences, read_override, read_recipe, to_toml
from transduce.storage.bundle import Bundle
from transduce.storage.checkpoint import checkpoints
from transduce.storage.disk import whole_file
from transduce.storage.run_lock import LOCK
from transduce.training.distributed import World
from transduce.training.run_state import RunState

RECIPE, STARTED_FROM, FINISHED = "recipe.toml", "started-from.txt", "finished.json"
FREE_TO_CHANGE = {  # settings with which a run may go on that began with others
    "training.steps", "training.report_every", "training.validate_every", "training.validation_sentences",
    "training.save_every", "training.keep_checkpoints", "training.average_checkpoints", "training.average",
    "training.patience", "training.until", "training.micro_batches", "training.sharding", "training.recompute",
    "model.kernel",
}  # fmt: skip
FREE_TO_TUNE = (
    "p_drop",
    "p_drop_attention",
    "p_drop_activation",
    "kernel",
)  # all else is the bundle's model


def adopt(recipe: Recipe, bundle: Bundle, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe for fine-tuning a bundle: with its model and its tokenizer, which no override may change."""
    model = replace(
        bundle.recipe.model, **{name: getattr(recipe.model, name) for name in FREE_TO_TUNE}
    )
    own = recipe.data.tokenizer
    joint = "tokenizer.model" in bundle.tokenizer_files
    tokenizer = replace(
        bundle.recipe.data.tokenizer, joint=joint, sampling=own.sampling, variants=own.variants
    )
    adopted = replace(recipe, model=model, data=replace(recipe.data, tokenizer=tokenizer))
    changed = differences(recipe, adopted)
    for name in (
        name
        for override in overrides
        for name in _names(*read_override(override))
        if name in changed
    ):
        raise ConfigError(
            f"{name} is {changed[name][0]}, but {changed[name][1]} in {bundle.path}, whose model and tokenizer "
            "fine-tuning keeps; leave it out"
        )
    return adopted


def _names(name: str, value: Any) -> list[str]:
    """Those of a setting, or of all in a section of them."""
    return (
        [each for key in value for each in _names(f"{name}.{key}", value[key])]
        if isinstance(value, dict)
        else [name]
    )


def fit_to_store(recipe: Recipe, store: Store) -> Recipe:
    """The recipe with the vocabulary sizes that the store's tokenizers have."""
    source, target = store.source_tokenizer.vocab_size, store.target_tokenizer.vocab_size
    joint = store.source_tokenizer is store.target_tokenizer
    if (recipe.model.source_vocab_size or recipe.model.vocab_size, recipe.model.vocab_size) == (
        source,
        target,
    ):
        return recipe
    if not joint and recipe.model.sharing == "three-way":
        raise ConfigError(
            'data.tokenizer.joint is false, but model.sharing is "three-way"; use "two-way" or "none"'
        )
    model = replace(recipe.model, vocab_size=target, source_vocab_size=None if joint else source)
    return replace(recipe, model=model)


def check_place(run: Path, recipe: Recipe) -> None:
    """Refuse a folder that could not be made or written, or is another recipe's, before any work is done for it."""
    there = next(place for place in (run, *run.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{run} cannot be written, because of {there}; choose another folder with --run"
        )
    if (run / RECIPE).exists() and not any(
        (run / name).exists() for name in (LOCK, FILE_NAME, "checkpoints")
    ):
        raise ConfigError(
            f"{run / RECIPE} is no run's, and would be overwritten; choose another folder with --run"
        )
    # The store's, later.
    refuse_another(run, recipe, {"model.vocab_size", "model.source_vocab_size"})


def refuse_another(run: Path, recipe: Recipe, free: Set[str] = frozenset()) -> None:
    """The run's folder belongs to one recipe: another is refused, not mixed in."""
    path = run / RECIPE
    if path.exists():
        changed = differences(recipe, read_recipe(path))
        refused = [
            name
            for name in changed
            if name not in FREE_TO_CHANGE | free and not name.startswith("search.")
        ]
        if refused:
            mine, theirs = changed[refused[0]]
            raise ConfigError(
                f"{run} was begun with {refused[0]} = {theirs}, not {mine}; choose another folder with --run"
            )


def claim(run: Path, recipe: Recipe, start_from: Bundle | None) -> None:
    """Write down whose the folder is, and that its run goes on."""
    with whole_file(run / RECIPE) as file:
        file.write(to_toml(recipe).encode())
    if start_from is not None:
        with whole_file(run / STARTED_FROM) as file:
            file.write(
                f"{start_from.fingerprint} ".encode() + os.fsencode(start_from.path.absolute())
            )
    (run / FINISHED).unlink(missing_ok=True)


def refuse_removed(run: Path) -> None:
    """Nobody may find half a run in the place of one that was removed while it was trained."""
    if not (run / RECIPE).exists():
        raise CheckpointError(
            f"{run} was removed while it was trained, and ends here; restore it, or begin a new run"
        )


def started_from(run: Path) -> tuple[str, Path] | None:
    """Fingerprint and place of the bundle that the run was fine-tuned from: who goes on with it need not name it."""
    note = run / STARTED_FROM
    if not note.is_file():
        return None
    fingerprint, _, place = note.read_bytes().partition(b" ")
    return fingerprint.decode(), Path(os.fsdecode(place))


def refuse_another_start(run: Path, bundle: Bundle) -> None:
    """A run that was begun goes on from its own weights, and not from those of another bundle."""
    begun = started_from(run)
    if (run / RECIPE).exists() and (begun is None or begun[0] != bundle.fingerprint):
        start = f"from {begun[1]}" if begun else "without --start-from"
        raise ConfigError(
            f"{run} was begun {start}, not from {bundle.path}; choose another folder with --run"
        )


def mark_finished(run: Path, standing: RunState) -> None:
    """Say that nothing is left to do for a run that stands here."""
    with whole_file(run / FINISHED) as file:
        file.write(json.dumps(standing.to_json()).encode())


def finished(run: Path) -> RunState | None:
    """Where the run stood when all was done, if it was and is; a damaged record says nothing."""
    try:
        record = json.loads((run / FINISHED).read_bytes())
        return RunState.from_json(record) if int(record["step"]) else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def ended(run: Path, recipe: Recipe, tokenizers: Sequence[str], world: World) -> RunState | None:
    """Where a finished run stands, if this recipe does not make it go on; otherwise it needs its checkpoints."""
    standing = finished(run)
    end = standing.end(recipe.training) if standing and standing.tokenizers == tokenizers else None
    seen_by_all = not world.any(end is None)  # else ranks see different folders, and will say so
    if end and seen_by_all:
        if world.speaks:
            print(f"{run} is finished: {end.why}; it goes on {end.goes_on}")
        return standing
    # To begin anew would be a quiet loss.
    if (run / FINISHED).exists() and not checkpoints(run / "checkpoints"):
        raise CheckpointError(
            f"{run} is finished, but its checkpoints are gone: it cannot go on; restore them, or begin a new run with "
            f"its model: --start-from {run} --run FOLDER"
        )
    return None
