"""What is wrong with a corpus, and the cleaned corpus: every file read once, every rule of `rules.py` applied."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from transduce.config import CorpusConfig, DataConfig, Recipe
from transduce.data.cleaning.cleaned_corpus import cleaned_folder
from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.cleaning.report import Report
from transduce.data.pairs import Chunk
from transduce.data.readers.compression import plain_suffix
from transduce.data.readers.corpus import CONTAINERS, read_chunks
from transduce.errors import ConfigError, DataError
from transduce.recipe import apply_overrides, read_recipe


def examine(
    data: DataConfig,
    base: Path,
    *,
    out: Path | None = None,
    processes: int = 1,
    progress: Callable[[int], None] = lambda pairs: None,
) -> Report:
    """Look at every pair of the corpora once; the validation and test sets are what may not leak into them.

    A corpus that cannot be read to its end (misaligned, cut off, in another encoding) is an error in the report.

    Args:
        data: The corpora, their languages and the settings of the rules.
        base: The folder that relative paths start from.
        out: A new folder for the cleaned corpora and what was dropped.
        processes: How many judge pairs.
        progress: Told of every so many pairs examined.
    """
    languages = (data.source_language, data.target_language)
    held_out = _read_all((*data.validation, *data.test), data, base)
    cleaner = Cleaner(data.clean, *languages, held_out=held_out)
    errors = []
    with cleaned_folder(out, languages) if out else contextlib.nullcontext() as writer:
        for corpus in data.corpora:
            chunks = read_chunks(corpus, *languages, base, strict=False)
            if writer:
                writer.begin(corpus)
            try:
                for chunk, reasons in cleaner.clean(chunks, processes):
                    if writer:
                        writer.write(chunk, reasons)
                    progress(len(chunk))
            except DataError as error:
                errors.append(str(error))
        report = cleaner.report()
        report.errors += errors
        if writer and not report.kept:
            report.errors.append(report.nothing_left())
        if writer and report.errors:
            writer.discard()
    return report


def _read_all(corpora: Sequence[CorpusConfig], data: DataConfig, base: Path) -> Iterator[Chunk]:
    for corpus in corpora:
        yield from read_chunks(corpus, data.source_language, data.target_language, base)


def from_arguments(
    arguments: Sequence[str],
    test: Sequence[str] = (),
    source_language: str | None = None,
    target_language: str | None = None,
) -> tuple[DataConfig, Path]:
    """What the command line names: files or a recipe, then overrides such as data.clean.max_words=100."""
    changes = [argument for argument in arguments if re.match(r"data\.[\w.]+=", argument)]
    files = [argument for argument in arguments if argument not in changes]
    recipe, base = Recipe(), Path()
    if len(files) == 1 and files[0].endswith(".toml"):
        recipe, base = read_recipe(Path(files[0])), Path(files[0]).parent
        if test:  # relative to where the command is given, not to the recipe
            test = [str(Path(name).absolute()) for name in test]
    else:
        source, target = _languages(files)
        data = DataConfig(corpora=_corpora(files), source_language=source, target_language=target)
        recipe = replace(recipe, data=data)
    recipe = apply_overrides(recipe, changes)
    data = replace(recipe.data, test=(*recipe.data.test, *_corpora(test)))
    data = replace(
        data,
        source_language=source_language or data.source_language,
        target_language=target_language or data.target_language,
    )
    if not data.corpora:
        raise ConfigError(
            "no corpus to examine; expected two parallel files, a container or a recipe with corpora"
        )
    return data, base


def _corpora(files: Sequence[str]) -> tuple[CorpusConfig, ...]:
    """Containers stand alone, other files are taken two by two."""
    corpora, waiting = [], None
    for file in files:
        if waiting is not None:
            corpora.append(CorpusConfig(source=(waiting,), target=(file,)))
            waiting = None
        elif plain_suffix(Path(file)) in CONTAINERS:
            corpora.append(CorpusConfig(source=(file,)))
        else:
            waiting = file
    if waiting is not None:
        known = ", ".join(CONTAINERS)
        raise ConfigError(
            f"{waiting} has no parallel file; expected source and target, or a container ({known})"
        )
    return tuple(corpora)


def _languages(files: Sequence[str]) -> tuple[str, str]:
    """The languages that the first two files are named after: x.en and x.de.gz."""
    codes = [
        re.fullmatch(r"\.([a-z]{2}([-_][a-z]+)?)", plain_suffix(Path(file))) for file in files[:2]
    ]
    if len(codes) == 2 and codes[0] and codes[1]:
        return codes[0][1], codes[1][1]
    return "source", "target"
