"""Examine a corpus: read every file once, apply every rule, and optionally write what is kept."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from transduce.config import CorpusConfig, DataConfig, Recipe
from transduce.data.cleaning.cleaned_corpus import cleaned_folder
from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.cleaning.report import Report
from transduce.data.pairs import Chunk
from transduce.data.readers.compression import plain_suffix
from transduce.data.readers.corpus import CONTAINERS, container_languages, read_chunks
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
    """Check every pair of the corpora, and that no sentence of a validation or test set is in them.

    A corpus that cannot be read to its end (misaligned, truncated, in another encoding) is an error
    in the report.

    Args:
        data: The corpora, their languages and the settings of the rules.
        base: The folder that relative paths start from.
        out: A new folder for the cleaned corpora and the dropped pairs.
        processes: The number of processes that check pairs.
        progress: Called with the number of pairs in each chunk that is done.
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

        # A corpus that is empty or was not read completely is not written.
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
    """Return the settings and the base folder that a command line describes.

    Args:
        arguments: Files or a recipe, then overrides such as data.clean.max_words=100.
        test: The files of validation and test sets.
        source_language: Its code; by default that of the recipe or of the file names.
        target_language: Likewise.
    """
    changes = [argument for argument in arguments if re.match(r"data\.[\w.]+=", argument)]
    files = [argument for argument in arguments if argument not in changes]
    recipe = Recipe()
    base = Path()
    if len(files) == 1 and files[0].endswith(".toml"):
        recipe = read_recipe(Path(files[0]))
        base = Path(files[0]).parent
        if test:  # relative to the current folder, not to the recipe
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
            "there is no corpus to examine; expected two parallel files, a file with both sides "
            f"({', '.join(CONTAINERS)}) or a recipe with corpora"
        )
    return data, base


def next_command(arguments: Sequence[str], out: Path | None) -> str:
    """Return the command that uses a corpus after the doctor's work."""
    files = [word for word in arguments if not re.match(r"data\.[\w.]+=", word)]
    if len(files) == 1 and files[0].endswith(".toml"):
        return f"transduce train {shlex.quote(files[0])}"
    if out is not None:  # the cleaned files have the same names
        cleaned = [out / Path(file).name for file in files]
        files = [str(path) for path in cleaned if path.exists()] or files
    words = ["transduce", "new", "FOLDER", "--source", files[0]]
    if len(files) > 1 and plain_suffix(Path(files[0])) not in CONTAINERS:
        words += ["--target", files[1]]
    return shlex.join(words)


def _corpora(files: Sequence[str]) -> tuple[CorpusConfig, ...]:
    """Return the corpora of a list of files: containers alone, other files two by two."""
    corpora = []
    source: str | None = None  # a source file whose target comes next
    for file in files:
        if source is not None:
            corpora.append(CorpusConfig(source=(source,), target=(file,)))
            source = None
        elif plain_suffix(Path(file)) in CONTAINERS or Path(file).is_dir():
            corpora.append(CorpusConfig(source=(file,)))
        else:
            source = file
    if source is not None:
        known = ", ".join(CONTAINERS)
        raise ConfigError(
            f"{source} has no parallel file; expected source and target, or a container ({known})"
        )
    return tuple(corpora)


def _languages(files: Sequence[str]) -> tuple[str, str]:
    """Return the languages in the names of the first two files, such as x.en, or in a TMX file."""
    codes = []
    for file in files[:2]:
        match = re.fullmatch(r"\.([a-z]{2}([-_][a-z]+)?)", plain_suffix(Path(file)))
        if match:
            codes.append(match[1])
    if len(codes) == 2:
        return codes[0], codes[1]
    languages = container_languages(Path(files[0])) if files else None
    return languages or ("source", "target")
