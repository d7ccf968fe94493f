"""Fine-tuning: its recipe, and what it loses on the text of the first training.

The validation text of the first training is found through the folder of that run, if it is still
there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transduce.config import Recipe
from transduce.data.store import Store
from transduce.errors import ConfigError, TransduceError
from transduce.evaluation.runs import find_store
from transduce.recipe import DERIVED, differences, read_override
from transduce.storage.bundle import Bundle
from transduce.training.validation import Validation

NOTABLE = 0.5  # BLEU; a smaller loss on the old text is not mentioned as a loss
# Settings of the model that may change in fine-tuning; the others are those of the bundle.
FREE_TO_TUNE = ("p_drop", "p_drop_attention", "p_drop_activation", "kernel")


def fine_tuning_recipe(recipe: Recipe, bundle: Bundle, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe with the model and the tokenizer of a bundle, to fine-tune it.

    An override that contradicts the bundle is an error.
    """
    # Take the model and the tokenizer from the bundle.
    tunable = {name: getattr(recipe.model, name) for name in FREE_TO_TUNE}
    model = replace(bundle.recipe.model, **tunable)
    tokenizer = replace(
        bundle.recipe.data.tokenizer,
        joint="tokenizer.model" in bundle.tokenizer_files,
        sampling=recipe.data.tokenizer.sampling,
        variants=recipe.data.tokenizer.variants,
    )
    tuned = replace(recipe, model=model, data=replace(recipe.data, tokenizer=tokenizer))

    # Refuse an override that this would silently undo.
    changed = differences(recipe, tuned)
    for override in overrides:
        for name in _setting_names(*read_override(override)):
            if name in changed:
                requested, kept = changed[name]
                raise ConfigError(
                    f"{name} is {requested}, but {kept} in {bundle.path}; fine-tuning keeps the "
                    "model and the tokenizer of the bundle: remove this setting"
                )
    return tuned


def unused_settings(recipe: Recipe, tuned: Recipe) -> str | None:
    """Return a line that names the settings which fine-tuning does not use, or None."""
    changed = differences(recipe, tuned)
    unused = [f"{name} = {changed[name][0]}" for name in changed if name not in DERIVED]
    if not unused:
        return None
    return (
        "fine-tuning keeps the model and the tokenizer of the bundle; these settings of the "
        f"recipe are not used: {', '.join(unused)}"
    )


def other_languages(recipe: Recipe, bundle: Bundle) -> str | None:
    """Return a line that says so if the text has other languages than the bundle, or None."""
    text = recipe.data.direction
    model = bundle.recipe.data.direction
    if text == model:
        return None
    return (
        f"the recipe translates {text}, but {bundle.path} {model}: the model will learn the one "
        "and forget the other; stop the run if you do not want that"
    )


def _setting_names(name: str, value: Any) -> list[str]:
    """Return the name of a setting, or the names of all settings in a section."""
    if not isinstance(value, dict):
        return [name]
    names = []
    for key in value:
        names += _setting_names(f"{name}.{key}", value[key])
    return names


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
