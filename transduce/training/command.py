"""`transduce train`: from a recipe file to a run, on one process or on all that torchrun started."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from transduce.bundle import Bundle, find_bundle, load_bundle
from transduce.config import Recipe
from transduce.data.prepare import default_store, prepare
from transduce.data.store import Store
from transduce.errors import BundleError, ConfigError
from transduce.recipe import load_recipe
from transduce.training.memory import fitting_micro_batches
from transduce.training.parallel import world
from transduce.training.run import adopt, check_place, refuse_another_start, started_from
from transduce.training.standing import Standing
from transduce.training.trainer import train


def train_from_recipe(
    name: str,
    overrides: Sequence[str] = (),
    *,
    run: Path | None = None,
    store: Path | None = None,
    start_from: Path | None = None,
    device: str | None = None,
) -> Standing:
    """Prepare the recipe's data on one rank, then train on all."""
    recipe = load_recipe(name, overrides)
    _refuse_what_cannot_work(name, recipe, device)
    path, folder = Path(name), run or Path("runs") / Path(name).stem
    place, tokenizers = store or default_store(name), {}
    if bundle := _load_start(start_from, folder):
        recipe, tokenizers = adopt(recipe, bundle, overrides), bundle.tokenizers
        place = store or place.with_suffix(f".{bundle.fingerprint[:8]}.store")  # its tokens are others
    with world(device) as here:
        fitting_micro_batches(recipe, here, folder)  # too little memory is said before any work
        if here.speaks:
            check_place(folder, recipe)
            say = functools.partial(print, file=sys.stderr)
            prepare(recipe, path.parent, place, replace=False, tokenizers=tokenizers, say=say)
        here.wait()
        return train(recipe, Store(place), folder, here, start_from=bundle)


def _refuse_what_cannot_work(name: str, recipe: Recipe, device: str | None) -> None:
    training = recipe.training
    if not recipe.data.corpora:
        raise ConfigError(f"{name} names no training text; write a recipe with [[data.corpora]], or run make demo")
    if not recipe.data.validation and (training.until or training.patience):
        what = f"until is {training.until}" if training.until else f"patience is {training.patience}"
        raise ConfigError(f"training.{what}, but without [[data.validation]] nothing is scored; add it to {name}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no GPU here; try --device cpu")


def _load_start(named: Path | None, run: Path) -> Bundle | None:
    """The bundle to start from, if there is one; a run that was begun knows its own."""
    begun = started_from(run)
    start = named or (begun[1] if begun else None)
    if start is None:
        return None
    try:
        bundle = load_bundle(find_bundle(start))
    except BundleError as error:
        why = "" if named else f"{run} was fine-tuned from {start}, so name its place with --start-from: "
        raise BundleError(f"{why}{error}") from None
    if named:
        refuse_another_start(run, bundle)
    return bundle
