"""Documents: files that are translated with their markup in place, each format in one module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from transduce.data.workers import progress
from transduce.errors import InputError
from transduce.storage.disk import whole_file
from transduce.translation.chunks import chunks, sizes
from transduce.translation.documents.formats import (
    ARCHIVES,
    FORMATS,
    is_document,
    refuse_compressed_document,
    refuse_other_content,
)
from transduce.translation.documents.job import Job
from transduce.translation.translator import Translator

__all__ = ["FORMATS", "check_files", "is_document", "translate_bytes", "translate_document"]
MOST_BYTES = 200_000_000  # of a file


def translate_document(
    translator: Translator,
    source: str | Path,
    target: str | Path,
    *,
    shows_progress: bool = False,
) -> list[str]:
    """Translate a file into another one of the same format, and return notices about it.

    The suffix of the source chooses the format. The target is written completely or not at all.
    With `shows_progress`, stderr has a bar of the characters that were translated.
    """
    source = Path(source)
    target = Path(target)
    check_files(source, target)
    if source.stat().st_size > MOST_BYTES:
        raise InputError(
            f"{source} has {source.stat().st_size:,} bytes; expected at most {MOST_BYTES:,}"
        )
    notices: list[str] = []

    def translate(texts: list[str]) -> list[str]:
        found = []
        characters = sum(map(len, texts))
        bar = progress(source.name, characters) if shows_progress else nullcontext(lambda _: None)
        with bar as advance:
            for chunk in chunks(texts, sizes()):
                for text, translation in zip(chunk, translator.translate(chunk), strict=True):
                    notices.extend(translation.notices)
                    found.append(translation.text)
                    advance(len(text))
        return found

    settings = translator.recipe.data
    languages = (settings.source_language, settings.target_language)
    data = translate_bytes(Job(source.read_bytes(), source.name, translate, languages))
    with whole_file(target) as file:
        file.write(data)
    return notices


def translate_bytes(job: Job) -> bytes:
    """Translate the content of a file, and return the new content."""
    if Path(job.name).suffix.lower() not in ARCHIVES:
        refuse_other_content(job.data, job.name)

    def translate(texts: list[str]) -> list[str]:
        # A text that occurs several times, such as a header, is translated once.
        unique = list(dict.fromkeys(texts))
        found = dict(zip(unique, job.translate(unique), strict=True))
        return [found[text] for text in texts]

    return _format(job.name)(replace(job, translate=translate))


def check_files(source: Path, target: Path) -> None:
    """Check that one file can be translated into the other."""
    refuse_compressed_document(source)
    if target.is_dir():
        raise InputError(f"{target} is a folder; expected a file such as {target / source.name}")
    if _named(source.name) != _named(target.name):
        raise InputError(
            f"{source.name} cannot be translated into {target.name}: both must have the same "
            "suffix; formats are not converted"
        )
    if not source.is_file():
        raise InputError(f"{source} is not a file; expected a document to translate")
    if not target.parent.is_dir():
        raise InputError(
            f"{target.name} cannot be written: {target.parent} is not a folder; create it first"
        )
    if target.exists() and source.samefile(target):
        raise InputError(f"{source} is both the input and the output; choose another output file")


def _named(name: str) -> str:
    """Return the function for a file, as its suffix names it."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise InputError(f"{name} has the suffix {suffix!r}; expected one of {known}")
    return FORMATS[suffix]


def _format(name: str) -> Callable[[Job], bytes]:
    module, _, function = _named(name).partition(".")
    found: Callable[[Job], bytes] = getattr(import_module(f"{__name__}.{module}"), function)
    return found
