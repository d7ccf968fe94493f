"""What a run reports at its end: how good its best model is, and how to translate with it."""

from __future__ import annotations

import shlex
from pathlib import Path

from transduce.data.store import Store
from transduce.data.tokenizer import is_own
from transduce.storage.installed import find_bundle
from transduce.training.hooks import Hooks
from transduce.training.run_state import RunState


def conclusion(state: RunState, run: Path) -> str:
    """Return how good the best model is, and where it is."""
    place = find_bundle(run)
    if not state.judged_by:
        return f"the model is in {place}; without [[data.validation]] it is not scored"
    origin = f"step {state.best_step:,}"
    if state.best_average:
        origin = f"the average of {state.best_average} checkpoints"
    message = f"{shown(state.judged_by, state.best)} from {origin}, in {place}"
    if state.judged_by in state.start:
        message += f" ({state.start[state.judged_by]:.1f} before fine-tuning)"
    return message


def next_step(run: Path, store: Store, hooks: Hooks) -> str:
    """Return how to translate with the best model: a command, or Python for the user's code."""
    own_parts = []
    if hooks.model is not None:
        own_parts.append(f"model={hooks.names['model']}")
    if any(is_own(content) for content in store.tokenizer_files.values()):
        own_parts.append("tokenizer=tokenizer")
    if not own_parts:
        return f"transduce translate --model {shlex.quote(str(run))} 'A sentence.'"
    arguments = ", ".join([repr(str(run)), *own_parts])
    return f"transduce.Translator({arguments}).translate('A sentence.')"


def shown(metric: str, score: float) -> str:
    """Return a score as a user reads it; in the state, higher is better."""
    return f"loss {-score:.3f}" if metric == "loss" else f"BLEU {score:.1f}"
