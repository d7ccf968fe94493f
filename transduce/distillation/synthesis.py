"""Synthetic parallel text: a model translates a large text, in parts that survive interruptions.

A call that finds parts of the same model, search and text translates only the others.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transduce.config import DataConfig, Recipe
from transduce.data.readers.corpus import read_chunks
from transduce.data.readers.lines import read_lines
from transduce.data.text_folder import whole_file
from transduce.data.workers import progress
from transduce.distillation.parts import translate_parts
from transduce.errors import DataError, InputError
from transduce.storage.disk import check_writable
from transduce.storage.lock import lock_work_folder
from transduce.translation.translator import Translator
from transduce.translation.work_record import open_record, write_json

RECORD = "synthesis.json"
PARTS = "parts"


@dataclass(frozen=True)
class Synthesis:
    """Two parallel files: texts, and their translations by a model."""

    inputs: Path
    translations: Path
    pairs: int
    dropped: int  # blank texts, and those whose translation was empty or did not end


def synthesize(
    translator: Translator,
    texts: Sequence[str],
    folder: Path,
    name: str,
    *,
    tag: str = "",
    processes: int = 1,
    device: str | None = None,
) -> Synthesis:
    """Translate texts into the files NAME.LANGUAGE of a folder.

    Args:
        translator: The model and the settings of the search.
        texts: The texts, one sentence each.
        folder: The new folder, or that of an interrupted call.
        name: The name of both files; their suffixes are the languages of the translator.
        tag: What to write before every translation, such as "<bt>", by which another model tells
            it from real text.
        processes: How many processes translate; the result does not depend on it.
        device: The device of several processes; by default a GPU if there is one.
    """
    if not texts:
        raise DataError("there is no text to translate; expected at least one sentence")
    if tag != " ".join(tag.split()):
        raise DataError(
            f"the tag is {tag!r}; expected one line without spaces at its ends, such as '<bt>'"
        )
    data = translator.recipe.data
    inputs = folder / f"{name}.{data.source_language}"
    translations = folder / f"{name}.{data.target_language}"
    if inputs == translations:
        raise DataError(
            f"the model translates {data.source_language} to itself, so that {inputs} would be "
            "both files; set data.target_language"
        )

    _check_folder(folder)
    work = folder / PARTS
    depends_on = _describe(translator, texts, tag)
    # `distil` has locked its own folder, so that only a `backtranslate` can meet another process.
    with lock_work_folder(work, "backtranslate"):
        record = open_record(
            folder / RECORD, depends_on, remedy="choose another folder or remove it"
        )
        if "pairs" not in record:
            parts = translate_parts(translator, texts, work, processes=processes, device=device)
            pairs = _join(texts, parts, inputs, translations, tag)
            record |= {"pairs": pairs, "dropped": len(texts) - pairs}
            write_json(folder / RECORD, record)
        shutil.rmtree(work)
    return Synthesis(inputs, translations, record["pairs"], record["dropped"])


def unique_sources(recipe: Recipe, base: Path, more: Iterable[Path] = ()) -> list[str]:
    """Return the source sentences of a recipe's training text, and of more files, each once."""
    data = recipe.data
    seen: dict[str, None] = {}  # keeps the order
    with progress("reading", None) as advance:
        for corpus in data.corpora:
            for chunk in read_chunks(corpus, data.source_language, data.target_language, base):
                seen.update(dict.fromkeys(chunk.sources))
                advance(len(chunk.sources))
    seen.update(dict.fromkeys(read_texts(more, data)))
    return [text for text in seen if text.strip()]


def read_texts(files: Iterable[Path], data: DataConfig) -> list[str]:
    """Return the lines of files in the source language, without empty ones and repetitions."""
    seen: dict[str, None] = {}
    for file in files:
        _refuse_target_language(file, data)
        for lines in read_lines(file, data.source_language):
            seen.update(dict.fromkeys(lines.texts))
    return [text for text in seen if text.strip()]


def _refuse_target_language(file: Path, data: DataConfig) -> None:
    """Refuse a file whose name says that it is in the target language: news.de.xz for en-de."""
    source, target = f".{data.source_language}", f".{data.target_language}"
    if target in file.suffixes and source not in file.suffixes:
        raise InputError(
            f"{file} is in {data.target_language} by its name, but the model translates "
            f"{data.direction}; use a model for the opposite direction, or another file"
        )


def _describe(translator: Translator, texts: Sequence[str], tag: str) -> dict[str, Any]:
    """Return what the translations depend on."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    bundle = translator.bundle
    return {
        "model": bundle.fingerprint if bundle else None,
        "search": asdict(translator.search),
        "text": digest.hexdigest(),
        "tag": tag,
    }


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written, or has something else than synthetic text."""
    check_writable(folder, "choose a new folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if RECORD not in names and names - {PARTS}:
        raise DataError(f"{folder} is not empty; choose a new folder")


def _join(
    texts: Sequence[str], parts: Iterable[Path], inputs: Path, translations: Path, tag: str
) -> int:
    """Write both files and return the number of pairs."""
    pairs = 0
    prefix = f"{tag} " if tag else ""
    with whole_file(inputs) as input_file, whole_file(translations) as translation_file:
        remaining = iter(texts)
        for part in parts:
            for line in json.loads(part.read_bytes()):
                text = next(remaining)
                if line is not None:
                    one_line = " ".join(text.split())
                    input_file.write(f"{one_line}\n".encode("utf-8", "replace"))
                    translation_file.write(f"{prefix}{line}\n".encode("utf-8", "replace"))
                    pairs += 1
        # Neither file appears after an error.
        if pairs == 0:
            raise DataError(
                f"none of {len(texts):,} texts has a usable translation; check the model, for "
                "example with transduce translate"
            )
    return pairs
