"""A test set: parallel files of sources, references and translations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from transduce.config import CorpusConfig, DataConfig
from transduce.data.readers.corpus import read_pairs
from transduce.data.readers.lines import read_lines
from transduce.data.workers import progress
from transduce.errors import DataError
from transduce.translation.translator import Translator

AT_ONCE = 256  # lines between two updates of the progress bar


def read_test_set(
    translator: Translator, source: Path, reference: Path
) -> tuple[list[str], list[str]]:
    """Return the lines of two parallel files in the languages of a translator."""
    data = translator.recipe.data
    languages = (data.source_language, data.target_language)
    sources, references = read_parallel([source, reference], languages)
    return sources, references


def read_sets(
    corpora: Iterable[CorpusConfig], data: DataConfig, base: Path = Path()
) -> tuple[list[str], list[str]]:
    """Return all sources and references of a recipe's validation or test sets, below `base`."""
    sources: list[str] = []
    references: list[str] = []
    for corpus in corpora:
        for pair in read_pairs(corpus, data.source_language, data.target_language, base):
            sources.append(pair.source)
            references.append(pair.target)
    return sources, references


def read_parallel(paths: Sequence[Path], languages: Sequence[str] = ()) -> list[list[str]]:
    """Return the lines of several parallel files: sources, references, and any translations.

    Translations may be empty lines, but the first two files must have text.
    """
    texts: list[list[str]] = []
    for index, path in enumerate(paths):
        language = languages[index] if index < len(languages) else ""
        lines = list(chain.from_iterable(block.texts for block in read_lines(path, language)))
        if index < 2 and not any(line.strip() for line in lines):
            raise DataError(f"{path} has no text; expected one sentence per line")
        texts.append(lines)

    # The references decide how many lines there must be.
    reference = min(1, len(paths) - 1)
    expected = len(texts[reference])
    for path, lines in zip(paths, texts, strict=True):
        if len(lines) != expected:
            raise DataError(
                f"{path} has {len(lines):,} lines but {paths[reference]} has {expected:,}; they "
                "must be parallel"
            )
    return texts


def report_empty_references(references: Sequence[str], name: Path | str) -> None:
    """Say how many references are empty: nobody can translate these lines well."""
    empty = [line for line, text in enumerate(references, start=1) if not text.strip()]
    if empty:
        print(
            f"transduce: {name} has {len(empty):,} empty lines, the first is line {empty[0]:,}; "
            "any translation of them counts as wrong",
            file=sys.stderr,
        )


def translate_test_set(
    translator: Translator, sources: Sequence[str], title: str = "translating"
) -> list[str]:
    """Translate the lines of a test set with a progress bar; say how many were split or cut."""
    translations: list[str] = []
    with_notices = 0
    with progress(title, len(sources)) as advance:
        for start in range(0, len(sources), AT_ONCE):
            for translation in translator.translate([*sources[start : start + AT_ONCE]]):
                translations.append(translation.text)
                with_notices += bool(translation.notices)
            advance(len(translations) - start)
    if with_notices:
        print(
            f"transduce: {with_notices:,} of {len(sources):,} lines were split or cut; transduce "
            "translate says which",
            file=sys.stderr,
        )
    return translations
