"""Fine-tuning: what it gains on its own text, and what it loses on the text of the first training.

The validation text of the first training is found through the folder of that run, if it is still
there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from transduce.data.store import Store
from transduce.errors import TransduceError
from transduce.evaluation.runs import find_store
from transduce.storage.bundle import Bundle
from transduce.training.validation import Validation

NOTABLE = 0.5  # BLEU; a smaller loss on the old text is not mentioned as a loss


def find_old_store(bundle: Bundle, tokenizers: Sequence[str]) -> Store | None:
    """Return the store that the bundle's run was trained on, or None if it is not there."""
    try:
        store = find_store(bundle.path.parent)
        if store is None or not store.validation.pairs:
            return None
        found = [store.source_tokenizer.fingerprint, store.target_tokenizer.fingerprint]
    except (TransduceError, OSError):
        return None  # the bundle was copied from elsewhere, or the store was removed
    return store if found == list(tokenizers) else None


def describe_missing_text(place: str) -> str:
    """Return what to do where the old text is not found."""
    return (
        f"the text that {place} was trained on is not here, so what fine-tuning loses on it is not "
        "measured; compare both models on other text with transduce score"
    )


def describe_change(before: float, after: float, place: str) -> str:
    """Return what fine-tuning did to the BLEU of the old text."""
    message = f"BLEU {after:.1f} on the validation text of {place} ({before:.1f} before)"
    if after < before - NOTABLE:
        message += (
            "; fine-tuning forgets it: add some of the old text to data.corpora, or train fewer "
            "steps"
        )
    return message


def scores_of(result: Validation) -> dict[str, float]:
    """Return the finite scores of a validation by name."""
    scores = {"bleu": result.bleu, "chrf": result.chrf, "loss": result.loss}
    return {name: value for name, value in scores.items() if math.isfinite(value)}
