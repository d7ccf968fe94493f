"""Return the token store of a recipe: the existing one, or a new one if its inputs have changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transduce.config import Recipe
from transduce.data.inputs import differences, read_inputs
from transduce.data.stages import Say, make_store
from transduce.data.store import MANIFEST, Store
from transduce.data.tokenizer import Tokenizer
from transduce.errors import ConfigError, DataError
from transduce.recipe import check_vocabulary, follow_tokenizer, load_recipe


def default_store(recipe: str) -> Path:
    """Return the default store of a recipe: `en-de.toml` has `en-de.store` next to it."""
    return Path(recipe).with_suffix(".store")


def prepare(
    recipe: Recipe | str | Path,
    base: Path | None = None,
    out: Path | None = None,
    *,
    workers: int = 0,
    verify: bool = False,
    replace: bool = True,
    tokenizers: Mapping[str, Tokenizer] | None = None,
    say: Say = lambda line: None,
) -> Store:
    """Return the token store of a recipe, and make it first unless it is up to date.

    Args:
        recipe: A recipe or the path of one. Its `data` section names the text and the settings.
        base: The folder that relative paths start from; by default the folder of the recipe's
            file, or the current folder.
        out: The folder of the store; by default next to the recipe's file.
        workers: The number of processes; 0 means one for each core.
        verify: Whether to compare an existing store with its checksums, byte by byte.
        replace: Whether to replace an existing store that was made from other inputs. If False,
            such a store is an error.
        tokenizers: Tokenizers to use instead of learning them, by side ("source", "target"); only
            "target" if both sides share one.
        say: Called with a line of text after each stage.
    """
    if not isinstance(recipe, Recipe):
        base = base or Path(recipe).parent
        out = out or default_store(str(recipe))
        recipe = load_recipe(str(recipe))
    if out is None:
        raise ConfigError(
            "out is missing; the recipe was not read from a file, so the store has no default "
            "folder: pass out"
        )
    base = base or Path()
    if not recipe.data.corpora:
        raise ConfigError(
            "data.corpora is empty; name the training text: "
            "[[data.corpora]] source = ... target = ..."
        )
    if not tokenizers:
        check_vocabulary(follow_tokenizer(recipe))

    existing = _open_existing(out, tokenizers, verify, say)
    known_inputs = existing.manifest["inputs"] if existing else None
    inputs = read_inputs(recipe.data, base, known_inputs, tokenizers)
    if existing and existing.fingerprint == inputs.fingerprint:
        return existing
    if existing:
        changed = differences(existing.manifest["inputs"], inputs)
        if not replace:
            raise DataError(
                f"{out} was made with other settings or text ({changed}) and is left unchanged; "
                "choose another folder for the store, or delete it so that it is made again"
            )
        say(f"{out} is made again, since this changed: {changed}")

    make_store(recipe.data, base, inputs, dict(tokenizers or {}), out, workers, say)
    return Store(out, tokenizers)


def _open_existing(
    out: Path, tokenizers: Mapping[str, Tokenizer] | None, verify: bool, say: Say
) -> Store | None:
    """Return the store in a folder, or None if there is none or it is damaged."""
    if not out.exists():
        return None
    if not (out / MANIFEST).exists():  # the folder may hold anything: do not replace it
        raise DataError(
            f"{out} exists and is not a token store; move it away, or choose another folder"
        )
    try:
        store = Store(out, tokenizers)
        if verify:
            store.verify()
    except DataError as error:
        say(f"{error}; it is made again")
        return None
    return store
