"""Find the source and the target among the columns, keys or languages of a file."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from transduce.data.languages import base_language
from transduce.errors import DataError

_SOURCE_NAMES = ("source", "src")
_TARGET_NAMES = ("target", "tgt")


def is_language(code: str, language: str) -> bool:
    """Return whether a code in a file is that of a language, or of a region of it: en-US is en."""
    code = code.lower().replace("_", "-")
    language = language.lower().replace("_", "-")
    return code == language or base_language(code) == language


@functools.lru_cache
def find_columns(names: tuple[str, ...], languages: tuple[str, str]) -> tuple[str | None, ...]:
    """Return the names of the source and target columns: language codes, or source and target."""
    by_language = tuple(_first_of_language(names, language) for language in languages)
    if None not in by_language:
        return by_language
    by_side = (_first_in(names, _SOURCE_NAMES), _first_in(names, _TARGET_NAMES))
    return by_side if None not in by_side else by_language


def require_columns(
    names: Iterable[str], languages: tuple[str, str], where: str
) -> tuple[str, str]:
    """Return the names of the source and target columns, or raise an error that names `where`."""
    names = tuple(names)
    source, target = find_columns(names, languages)
    if source is None or target is None:
        missing = languages[0] if source is None else languages[1]
        known = ", ".join(names) or "nothing"
        raise DataError(
            f"{where} has no {missing!r}; it has {known}: "
            "set the source and target language to such codes, or call the sides source and target"
        )
    return source, target


def as_text(value: Any, name: str, where: str) -> str:
    """Return the text of a cell; an absent one is empty, and anything else is an error."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{where}: {name} is {value!r:.40}; expected text")
    return value


def _first_of_language(names: Sequence[str], language: str) -> str | None:
    return next((name for name in names if is_language(name, language)), None)


def _first_in(names: Sequence[str], known: Sequence[str]) -> str | None:
    return next((name for name in names if name.lower() in known), None)
