"""The text of an experiment: a recipe file, or the name of a corpus that is fetched first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transduce.config import CorpusConfig, DataConfig
from transduce.corpora.catalogue import PHRASES, find
from transduce.corpora.get import get
from transduce.data.text_folder import RECIPE
from transduce.errors import ConfigError, DataError
from transduce.recipe import read_recipe


def find_corpus(name: str, out: Path, *, fetch: bool = True) -> DataConfig:
    """Return the data section of a recipe file, or of a corpus by name.

    A corpus is fetched into OUT/corpus/NAME if it is not there; without `fetch`, that is an error.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = out / "corpus" / name / RECIPE
        if not path.is_file():
            if not fetch:
                if name != PHRASES:
                    find(name)  # an unknown name is another mistake
                raise ConfigError(
                    f"the corpus {name} is not in {path.parent}; run the command without "
                    "--dry-run, or give a recipe file"
                )
            path = _get(name, path.parent)
    data = read_recipe(path).data
    if not data.corpora or not data.validation:
        missing = "[[data.corpora]]" if not data.corpora else "[[data.validation]]"
        raise ConfigError(f"{path} has no {missing}; the rows of a table need both")
    return _relative_to(data, path.parent)


def _get(name: str, folder: Path) -> Path:
    """Fetch a corpus; the advice of its messages is for `transduce data get`."""
    try:
        return get(name, folder)
    except DataError as error:
        raise DataError(f"{error}, in: transduce data get {name} --out {folder}") from None


def _relative_to(data: DataConfig, folder: Path) -> DataConfig:
    """Return the section with paths that start from the current folder and not the recipe's."""
    return replace(
        data,
        corpora=_moved(data.corpora, folder),
        validation=_moved(data.validation, folder),
        test=_moved(data.test, folder),
    )


def _moved(corpora: Sequence[CorpusConfig], folder: Path) -> tuple[CorpusConfig, ...]:
    moved = []
    for corpus in corpora:
        # However the recipe's path is written, the rows have the same settings.
        source = tuple(os.path.relpath(folder / pattern) for pattern in corpus.source)
        target = tuple(os.path.relpath(folder / pattern) for pattern in corpus.target)
        moved.append(replace(corpus, source=source, target=target))
    return tuple(moved)
