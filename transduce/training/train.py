"""`transduce.train` and `transduce train`: from a recipe to a run, on any number of ranks."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from transduce.config import Recipe
from transduce.data.own_tokenizer import OwnTokenizers, by_side, pair_of
from transduce.data.prepare import default_store, prepare
from transduce.data.store import Store
from transduce.data.text_folder import RECIPE
from transduce.data.tokenizer import Tokenizer
from transduce.errors import BundleError, ConfigError
from transduce.recipe import apply_overrides, check_vocabulary, follow_tokenizer, load_recipe
from transduce.storage.bundle import Bundle, load_bundle
from transduce.storage.installed import find_bundle
from transduce.training.distributed import world as join_world
from transduce.training.fine_tuning import fine_tuning_recipe, other_languages, unused_settings
from transduce.training.hooks import BuildModel, BuildOptimizers, Callback, Hooks, Loss, Schedule
from transduce.training.memory import choose_micro_batches
from transduce.training.run import Run
from transduce.training.run_folder import (
    check_folder,
    check_same_start,
    started_from,
)
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
    """Prepare the data of a recipe, then train. A run that was stopped resumes where it was.

    Args:
        recipe: A recipe, or the path of its TOML file; paths of text are relative to that file.
        run: The folder of the run; by default `runs/` and the name of the recipe file, or of
            its folder if the file is called recipe.toml.
        overrides: Settings to change, such as "training.steps=1000".
        store: The folder of the prepared text; by default next to the recipe file, or the run.
        start_from: A bundle or a run whose model and tokenizer to fine-tune.
        device: Such as "cuda" or "cpu"; by default a GPU if there is one.
        model: Builds a custom model from a ModelConfig: a class like Transformer, or a function;
            or a module, copies of which are trained. It needs `config`, `encode` and `decode`
            (see `engines.torch`).
        optimizers: Builds custom optimizers from the named parameters and the TrainingConfig.
        schedule: Returns the learning rate of step 1, 2, 3, ...
        loss: Returns the sum of the training loss over all target tokens, from logits (B, T, V)
            and labels (B, T). Padding has the last id and is not a label.
        callbacks: Functions that get every record of metrics.jsonl; one that returns True ends
            the run.
        tokenizer: A custom tokenizer (`size`, `encode`, `decode`), or one for each side.
    """
    # Check the arguments before any work.
    hooks = Hooks(model, optimizers, schedule, loss, tuple(callbacks))
    if isinstance(recipe, Recipe):
        settings = follow_tokenizer(apply_overrides(recipe, overrides))
        recipe_name = "the recipe"
        base = Path()
    else:
        settings = load_recipe(str(recipe), overrides)
        recipe_name = str(recipe)
        base = Path(recipe).parent
    _check_settings(recipe_name, settings, device)
    folder = _run_folder(recipe, run)
    store_path = _store_path(recipe, store, folder)

    # Fine-tuning: the model and the tokenizer are those of the bundle.
    tokenizers = by_side(tokenizer)
    bundle = _load_start(start_from, folder)
    notices: list[str | None] = []
    if bundle is not None:
        requested = settings
        settings = fine_tuning_recipe(requested, bundle, overrides)
        notices = [unused_settings(requested, settings), other_languages(settings, bundle)]
        tokenizers = _tokenizers_of(bundle, tokenizer)
        if not store:
            # Another tokenizer needs another store; bundles with the same one share it.
            store_path = store_path.with_suffix(f".{_fingerprint(tokenizers)[:8]}.store")
    if not tokenizers:
        check_vocabulary(settings)

    def prepare_data() -> None:
        check_folder(folder, settings)
        say = functools.partial(print, file=sys.stderr)
        for notice in filter(None, notices):
            say(notice)
        prepare(settings, base, store_path, replace=False, tokenizers=tokenizers, say=say)

    # Prepare the data on rank 0, then train on all.
    with join_world(device) as world:
        choose_micro_batches(settings, world, folder)  # fails before any work without memory
        world.do_on_main(prepare_data)
        prepared = Store(store_path, tokenizers)
        state = run_training(settings, prepared, folder, world, start_from=bundle, hooks=hooks)
        return Run(folder, state)


def _run_folder(recipe: Recipe | str | Path, run: str | Path | None) -> Path:
    if run is not None:
        return Path(run)
    if isinstance(recipe, Recipe):
        raise ConfigError(
            "run is missing; a recipe without a file has no name, so pass a folder for the run, "
            "such as run='runs/first'"
        )
    path = Path(recipe)
    # Many recipes are called recipe.toml (`transduce new` writes them); their folders differ.
    folder = path.resolve().parent.name
    return Path("runs") / (folder if path.name == RECIPE and folder else path.stem)


def _store_path(recipe: Recipe | str | Path, store: str | Path | None, run: Path) -> Path:
    if store:
        return Path(store)
    if isinstance(recipe, Recipe):
        return run.with_suffix(".store")
    return default_store(str(recipe))


def _check_settings(name: str, recipe: Recipe, device: str | None) -> None:
    training = recipe.training
    if not recipe.data.corpora:
        raise ConfigError(
            f"{name} names no training text; write a recipe with [[data.corpora]], or run make demo"
        )
    if not recipe.data.validation and (training.until or training.patience):
        setting = f"patience is {training.patience}"
        if training.until:
            setting = f"until is {training.until}"
        raise ConfigError(
            f"training.{setting}, but without [[data.validation]] nothing is scored; add it to "
            f"{name}"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but PyTorch finds no GPU here; use --device cpu")


def _tokenizers_of(bundle: Bundle, own: OwnTokenizers) -> dict[str, Tokenizer]:
    """Return the bundle's tokenizers by side; only the target's if both sides share it."""
    if own is None:
        source, target = Tokenizer.pair(bundle.tokenizer_files)
    else:
        source, target = pair_of(bundle.tokenizer_files, own)
    return {"target": target} if source is target else {"source": source, "target": target}


def _fingerprint(tokenizers: Mapping[str, Tokenizer]) -> str:
    """Return a hash of the tokenizers of both sides."""
    parts = [f"{side} {tokenizers[side].fingerprint}" for side in sorted(tokenizers)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _load_start(requested: str | Path | None, run: Path) -> Bundle | None:
    """Return the bundle to start from, or None. A run that was started has recorded its bundle."""
    remembered = started_from(run)
    path = requested or (remembered[1] if remembered else None)
    if path is None:
        return None

    try:
        bundle = load_bundle(find_bundle(path))
    except BundleError as error:
        if requested:
            raise BundleError(str(error)) from None
        raise BundleError(
            f"{run} was fine-tuned from {path}; pass where that bundle is now with --start-from: "
            f"{error}"
        ) from None
    if requested:
        check_same_start(run, bundle)
    return bundle
