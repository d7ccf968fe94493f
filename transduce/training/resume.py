"""Resume a run from its newest checkpoint, which must fit it, or start it at step 0."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transduce.data.store import Store
from transduce.errors import CheckpointError, ConfigError
from transduce.monitoring.metrics import FILE_NAME
from transduce.storage.bundle import Bundle
from transduce.storage.checkpoint import PROGRESS, Checkpoint, load_newest
from transduce.training.distributed import World
from transduce.training.hooks import Hooks
from transduce.training.learning import Learning
from transduce.training.run_state import RunState

DEFAULT_HOOK = "the recipe's"  # in messages, where no custom function was passed


def resume_or_start(
    run: Path,
    learning: Learning,
    store: Store,
    hooks: Hooks,
    world: World,
    start_from: Bundle | None,
) -> tuple[RunState, list[tuple[str, str]]]:
    """Restore the newest intact checkpoint, or start with new weights or those of a bundle.

    Return the state of the run, and events to report, (kind, message).
    """
    checkpoint = _find_checkpoint(run, learning, hooks, world)
    if checkpoint is not None:
        state = _read_state(checkpoint, run, store, hooks)
        groups = {group: checkpoint.tensors(group) for group in checkpoint.groups}
        learning.restore(groups)
        message = f"after step {checkpoint.step:,}"
        if checkpoint.damaged:
            message += f", the newest intact checkpoint: {'; '.join(checkpoint.damaged)}"
        return state, [("resumed", f"{message}; precision: {learning.precision}")]

    state = RunState(tokenizers=tokenizer_fingerprints(store), hooks=hooks.names)
    messages = []
    # The run was killed before its first save, or its checkpoints were removed.
    if (run / FILE_NAME).exists():
        messages.append(f"again from step 0: {run} was started before, but has no checkpoint")
    if start_from is not None:
        new = learning.load_weights(start_from.weights())
        message = f"from {start_from.path}, with its model and its tokenizer"
        if new:
            message += f", except for {len(new)} weights that it does not have, such as {new[0]}"
        messages.append(message)
    return state, [("started", message) for message in messages]


def _find_checkpoint(
    run: Path, learning: Learning, hooks: Hooks, world: World
) -> Checkpoint | None:
    """Return the newest intact checkpoint, which must be the same for all ranks."""

    def refuse_misfit(checkpoint: Checkpoint) -> None:
        _refuse_misfit(checkpoint, learning, hooks)

    checkpoint = load_newest(run / "checkpoints", refuse_misfit)
    step = checkpoint.step if checkpoint else 0
    if not world.agrees(step):
        raise CheckpointError(
            f"rank {world.rank} finds step {step:,} in {run}, but other ranks find another step; "
            "all machines must share this folder"
        )
    return checkpoint


def _refuse_misfit(checkpoint: Checkpoint, learning: Learning, hooks: Hooks) -> None:
    """Raise a CheckpointError unless the checkpoint has a state that this run can continue."""
    try:
        state = RunState.from_json(checkpoint.progress)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path / PROGRESS} was changed: {error}") from None
    if state.hooks != hooks.names:
        return  # that is an error with a message of its own
    expected = learning.groups if state.step else learning.groups - {"ema"}
    for group in sorted(expected - set(checkpoint.groups)):
        raise CheckpointError(f"{checkpoint.file(group)} is missing")
    for group in checkpoint.groups:
        problem = learning.misfit(group, checkpoint.types(group))
        if problem:
            raise CheckpointError(f"{checkpoint.file(group)} is not of this run: {problem}")


def _read_state(checkpoint: Checkpoint, run: Path, store: Store, hooks: Hooks) -> RunState:
    """Return the state of the run, which must have the same hooks and tokenizers as before."""
    state = RunState.from_json(checkpoint.progress)
    _check_same_hooks(run, state.hooks, hooks.names)
    if state.tokenizers != tokenizer_fingerprints(store):
        raise ConfigError(
            f"{run} was started with another tokenizer than that of {store.path}; choose another "
            "folder for the run, or use the first store again"
        )
    return state


def _check_same_hooks(run: Path, previous: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Refuse to resume a run with other custom functions than it was started with."""
    for role in sorted(previous.keys() | current.keys()):
        if previous.get(role) != current.get(role):
            raise ConfigError(
                f"{run} was started with {role} {previous.get(role, DEFAULT_HOOK)}, not "
                f"{current.get(role, DEFAULT_HOOK)}; pass the same again, or choose another "
                "folder for a new run"
            )


def tokenizer_fingerprints(store: Store) -> list[str]:
    """Return the fingerprints of the tokenizers of source and target."""
    return [tokenizer.fingerprint for tokenizer in (store.source_tokenizer, store.target_tokenizer)]
