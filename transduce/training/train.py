"""From a recipe to a run, on one process or on all that torchrun started: `transduce train` and `transduce.train`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from transduce.config import Recipe
from transduce.data.own_tokenizer import OwnTokenizers, by_side, pair_of
from transduce.data.prepare import default_store, prepare
from transduce.data.store import Store
from transduce.data.tokenizer import Tokenizer
from transduce.errors import BundleError, ConfigError
from transduce.recipe import apply_overrides, load_recipe
from transduce.storage.bundle import Bundle, find_bundle, load_bundle
from transduce.training.distributed import world
from transduce.training.hooks import BuildModel, BuildOptimizers, Callback, Hooks, Loss, Schedule
from transduce.training.memory import fitting_micro_batches
from transduce.training.run import Run
from transduce.training.run_folder import adopt, check_place, refuse_another_start, started_from
from transduce.training.trainer import run_training


def train(
    recipe: Recipe | str | Path,
    *,
    run: str | Path | None = None,
    overrides: Sequence[str] = (),
    store: str | Path | None = None,
    start_from: str | Path | None = None,
    device: str | None = None,
    model: BuildModel | nn.Module | None = None,
    optimizers: BuildOptimizers | None = None,
    schedule: Schedule | None = None,
    loss: Loss | None = None,
    callbacks: Sequence[Callback] = (),
    tokenizer: OwnTokenizers = None,
) -> Run:
    """Prepare a recipe's data on one rank, then train on all. A run that was begun goes on where it was.

    Args:
        recipe: A recipe, or the TOML file that it is in; paths of text are relative to that file's folder.
        run: The folder of the run; by default `runs/` and the name of the recipe's file.
        overrides: Settings to change, such as "training.steps=1000".
        store: The prepared text; by default next to the recipe's file, or to the run.
        start_from: A bundle or a run whose model and tokenizer to fine-tune.
        device: Such as "cuda" or "cpu"; by default a GPU where there is one.
        model: Makes a model of your own from a ModelConfig: a class like Transformer, or a function; or a module,
            copies of which are trained. It needs `config`, `encode` and `decode` (`engines.torch`).
        optimizers: Makes your own optimizers, from the named parameters and the TrainingConfig.
        schedule: The learning rate of step 1, 2, 3, ...
        loss: The sum over all target tokens of what is minimized, from logits (B, T, V) and labels (B, T); padding,
            the last id, is no label.
        callbacks: Called with every record of metrics.jsonl; one that returns True ends the run.
        tokenizer: A tokenizer of your own (`size`, `encode`, `decode`), or those of source and target.
    """
    hooks = Hooks(model, optimizers, schedule, loss, tuple(callbacks))
    settings = (
        apply_overrides(recipe, overrides)
        if isinstance(recipe, Recipe)
        else load_recipe(str(recipe), overrides)
    )
    name = "the recipe" if isinstance(recipe, Recipe) else str(recipe)
    _refuse_what_cannot_work(name, settings, device)
    folder = _run_folder(recipe, run)
    base = Path() if isinstance(recipe, Recipe) else Path(recipe).parent
    place = Path(store) if store else folder.with_suffix(".store")
    if not store and not isinstance(recipe, Recipe):
        place = default_store(str(recipe))
    tokenizers = by_side(tokenizer)
    if bundle := _load_start(start_from, folder):
        settings, tokenizers = adopt(settings, bundle, overrides), _tokenizers_of(bundle, tokenizer)
        # Its tokens are others.
        place = Path(store) if store else place.with_suffix(f".{bundle.fingerprint[:8]}.store")
    with world(device) as here:
        fitting_micro_batches(settings, here, folder)  # too little memory is said before any work
        if here.speaks:
            check_place(folder, settings)
            say = functools.partial(print, file=sys.stderr)
            prepare(settings, base, place, replace=False, tokenizers=tokenizers, say=say)
        here.wait()
        standing = run_training(
            settings, Store(place, tokenizers), folder, here, start_from=bundle, hooks=hooks
        )
        return Run(folder, standing)


def _run_folder(recipe: Recipe | str | Path, run: str | Path | None) -> Path:
    if run is not None:
        return Path(run)
    if isinstance(recipe, Recipe):
        raise ConfigError(
            "run is missing; a recipe without a file has no name: say where to write, run='runs/first'"
        )
    return Path("runs") / Path(recipe).stem


def _refuse_what_cannot_work(name: str, recipe: Recipe, device: str | None) -> None:
    training = recipe.training
    if not recipe.data.corpora:
        raise ConfigError(
            f"{name} names no training text; write a recipe with [[data.corpora]], or run make demo"
        )
    if not recipe.data.validation and (training.until or training.patience):
        what = (
            f"until is {training.until}" if training.until else f"patience is {training.patience}"
        )
        raise ConfigError(
            f"training.{what}, but without [[data.validation]] nothing is scored; add it to {name}"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no GPU here; try --device cpu")


def _tokenizers_of(bundle: Bundle, own: OwnTokenizers) -> dict[str, Tokenizer]:
    """By side; the target's alone if both languages share it."""
    source, target = pair_of(bundle.tokenizer_files, own)
    return {"target": target} if source is target else {"source": source, "target": target}


def _load_start(named: str | Path | None, run: Path) -> Bundle | None:
    """The bundle to start from, if there is one; a run that was begun knows its own."""
    begun = started_from(run)
    start = named or (begun[1] if begun else None)
    if start is None:
        return None
    try:
        bundle = load_bundle(find_bundle(start))
    except BundleError as error:
        why = (
            ""
            if named
            else f"{run} was fine-tuned from {start}, so name its place with --start-from: "
        )
        raise BundleError(f"{why}{error}") from None
    if named:
        refuse_another_start(run, bundle)
    return bundle
