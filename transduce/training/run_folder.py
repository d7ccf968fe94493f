"""The folder of a run: the recipe and the bundle it belongs to, and whether it is finished."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.config import Recipe
from transduce.data.store import Store
from transduce.errors import CheckpointError, ConfigError
from transduce.monitoring.metrics import FILE_NAME
from transduce.recipe import TEXTS, differences, read_recipe, to_toml
from transduce.storage.bundle import Bundle
from transduce.storage.checkpoint import checkpoints
from transduce.storage.disk import check_writable, whole_file
from transduce.storage.lock import RUN_LOCK
from transduce.training.distributed import World
from transduce.training.run_state import RunState

RECIPE = "recipe.toml"
STARTED_FROM = "started-from.txt"
DISTILLED_FROM = "distilled-from.json"
FINISHED = "finished.json"

# Settings that may change when a run resumes.
FREE_TO_CHANGE = {
    "training.steps",
    "training.report_every",
    "training.validate_every",
    "training.validation_sentences",
    "training.save_every",
    "training.early_save_every",
    "training.keep_checkpoints",
    "training.average_checkpoints",
    "training.average",
    "training.patience",
    "training.until",
    "training.micro_batches",
    "training.sharding",
    "training.recompute",
    "model.kernel",
}


def set_vocabulary_sizes(recipe: Recipe, store: Store) -> Recipe:
    """Return the recipe with the vocabulary sizes of the store's tokenizers."""
    source_size = store.source_tokenizer.vocab_size
    target_size = store.target_tokenizer.vocab_size
    model = recipe.model
    current_sizes = (model.source_vocab_size or model.vocab_size, model.vocab_size)
    if current_sizes == (source_size, target_size):
        return recipe

    joint = store.source_tokenizer is store.target_tokenizer
    if not joint and model.sharing == "three-way":
        raise ConfigError(
            'data.tokenizer.joint is false, but model.sharing is "three-way"; use "two-way" or '
            '"none"'
        )
    source_vocab_size = None if joint else source_size
    model = replace(model, vocab_size=target_size, source_vocab_size=source_vocab_size)
    return replace(recipe, model=model)


def check_folder(run: Path, recipe: Recipe) -> None:
    """Refuse a folder that cannot be written or belongs to another recipe, before any work."""
    check_writable(run, "choose another folder for the run")
    # A recipe beside its text may have the same name as the recipe of a run.
    files_of_a_run = [run / name for name in (RUN_LOCK, FILE_NAME, "checkpoints")]
    if (run / RECIPE).exists() and not any(path.exists() for path in files_of_a_run):
        raise ConfigError(
            f"{run / RECIPE} does not belong to a run and would be overwritten; choose another "
            "folder for the run"
        )
    # The vocabulary sizes are known only after the data is prepared.
    check_same_recipe(run, recipe, {"model.vocab_size", "model.source_vocab_size"})


def check_same_recipe(run: Path, recipe: Recipe, free: Set[str] = frozenset()) -> None:
    """Refuse a folder whose run was started with another recipe."""
    path = run / RECIPE
    if not path.exists():
        return
    for name, (requested, started_with) in differences(recipe, read_recipe(path)).items():
        if name not in FREE_TO_CHANGE | free and not name.startswith("search."):
            change = f"{name} = {started_with}, not {requested}"
            if name in TEXTS:
                change = f"other {name}"
            raise ConfigError(f"{run} was started with {change}; choose another folder for the run")


def claim_folder(run: Path, recipe: Recipe, start_from: Bundle | None) -> None:
    """Write down the recipe and the bundle of a run, and that it is not finished."""
    with whole_file(run / RECIPE) as file:
        file.write(to_toml(recipe).encode())
    if start_from is not None:
        # A path may contain bytes that are not UTF-8.
        path = os.fsencode(start_from.path.absolute())
        with whole_file(run / STARTED_FROM) as file:
            file.write(f"{start_from.fingerprint} ".encode() + path)
    (run / FINISHED).unlink(missing_ok=True)


def check_not_removed(run: Path) -> None:
    """Stop if the folder was removed during training: writing on would leave half a run there."""
    if not (run / RECIPE).exists():
        raise CheckpointError(
            f"{run} was removed during training, so training stops; restore it, or start a new run"
        )


def started_from(run: Path) -> tuple[str, Path] | None:
    """Return the fingerprint and the path of the bundle that the run fine-tunes, or None."""
    note = run / STARTED_FROM
    if not note.is_file():
        return None
    fingerprint, _, path = note.read_bytes().partition(b" ")
    if not re.fullmatch(rb"[0-9a-f]{1,64}", fingerprint) or not path or b"\0" in path:
        raise CheckpointError(
            f"{note} does not have the fingerprint and the path of a bundle; remove it and pass "
            "--start-from again, or choose another folder for the run"
        )
    return fingerprint.decode(), Path(os.fsdecode(path))


def check_same_start(run: Path, bundle: Bundle) -> None:
    """Refuse another bundle than the one that the run was started from."""
    if not (run / RECIPE).exists():
        return
    start = started_from(run)
    if start is None:
        raise ConfigError(
            f"{run} was started without --start-from, not from {bundle.path}; choose another "
            "folder for the run"
        )
    fingerprint, path = start
    if fingerprint != bundle.fingerprint:
        raise ConfigError(
            f"{run} was started from {path}, not from {bundle.path}; choose another folder for "
            "the run"
        )


def note_teacher(run: Path, teacher: Bundle) -> None:
    """Write down the bundle whose translations a run learns; all models of the run name it."""
    noted = read_teacher(run)
    if noted is not None and noted.get("fingerprint") == teacher.fingerprint:
        return  # it may have another name now, but the models of a run have the same note
    facts = {"name": teacher.name, "fingerprint": teacher.fingerprint, "scores": teacher.scores}
    run.mkdir(parents=True, exist_ok=True)
    with whole_file(run / DISTILLED_FROM) as file:
        file.write(json.dumps(facts).encode())


def read_teacher(run: Path) -> dict[str, Any] | None:
    """Return what is known about the bundle whose translations the run learns, or None."""
    note = run / DISTILLED_FROM
    if not note.is_file():
        return None
    try:
        facts = json.loads(note.read_bytes())
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise CheckpointError(
            f"{note} is not a JSON object; remove it and start transduce distil again, which "
            "writes it"
        )
    return facts


def mark_finished(run: Path, state: RunState) -> None:
    """Write down that the run is finished, with its final state."""
    with whole_file(run / FINISHED) as file:
        file.write(json.dumps(state.to_json()).encode())


def read_finished(run: Path) -> RunState | None:
    """Return the final state of a finished run, or None if it is not finished.

    A file that was edited raises a ValueError.
    """
    try:
        content = (run / FINISHED).read_bytes()
    except OSError:
        return None
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    return RunState.from_json(values)


def find_finished(
    run: Path, recipe: Recipe, tokenizers: Sequence[str], world: World
) -> RunState | None:
    """Return the final state of a run that needs no more training under this recipe, or None.

    A finished run that has to train further needs its checkpoints.
    """
    reason = None
    try:
        state = read_finished(run)
    except ValueError as error:
        state = None
        if world.is_main:
            print(
                f"{run / FINISHED} was changed: {error}; the newest checkpoint is used instead",
                file=sys.stderr,
            )
    if state is not None and state.tokenizers == tokenizers:
        reason = state.stop_reason(recipe.training)

    # Ranks that see different folders fail later, with a better message.
    all_ranks_agree = not world.any(reason is None)
    if reason is not None and all_ranks_agree:
        if world.is_main:
            print(
                f"{run} is finished: {reason.message}; to train further, {reason.how_to_continue}"
            )
        return state

    # Starting again from step 0 would silently discard a finished run.
    if (run / FINISHED).exists() and not checkpoints(run / "checkpoints"):
        raise CheckpointError(
            f"{run} is finished, but its checkpoints are gone, so it cannot train further; restore "
            f"them, or start a new run from its model: transduce train RECIPE --start-from {run}"
        )
    return None
