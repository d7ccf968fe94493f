"""A first recipe for the user's own parallel text: `transduce new FOLDER`.

The text decides the preset and the size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from transduce.data.guess_languages import Files, file_names, guess_languages, read_files
from transduce.data.starter_recipe import recipe_text
from transduce.data.suggestions import (
    SAMPLE,
    Statistics,
    measure_text,
    suggest_preset,
    suggest_vocabulary,
)
from transduce.data.text_folder import RECIPE, whole_file
from transduce.errors import ConfigError, DataError
from transduce.presets import preset as find_preset

Say = Callable[[str], None]

MOST_HELD_OUT = 1_000


def write_starter(
    folder: Path,
    source: Path,
    target: Path | None,
    *,
    validation: tuple[Path, Path] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    preset: str | None = None,
    say: Say,
) -> Path:
    """Write a commented recipe for parallel text into a folder, and return the recipe's path.

    Args:
        folder: The folder of the recipe; it is created if it does not exist.
        source: The source text, or a file with both languages (TSV, JSONL, TMX, Parquet), or a
            folder of such files.
        target: The target text, line by line; None if `source` has both languages.
        validation: The source and target text to validate on. If None, the last pairs of the
            training text are held out: new files of both parts are written into the folder.
        source_language: The code of the source language; by default from the file or its name.
        target_language: The code of the target language, likewise.
        preset: The preset to start from; by default chosen by the number of pairs.
        say: Called with a line of text for each finding or file.
    """
    path = folder / RECIPE
    if path.exists():
        raise ConfigError(
            f"{path} already exists and is not overwritten; choose another folder, or delete it"
        )
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; choose a folder for the recipe")
    if preset is not None:
        find_preset(preset)  # a wrong name is an error before the text is read

    # Look at the text.
    files: Files = (source,) if target is None else (source, target)
    for file in (*files, *(validation or ())):
        _refuse_unwritable_name(file)
    languages = guess_languages(files, source_language, target_language)
    statistics = _count(files, languages)
    say(
        f"{file_names(files)}: {statistics.pairs:,} pairs, {languages[0]} to {languages[1]}, "
        f"about {statistics.words_per_sentence:.0f} words per sentence"
    )

    # Choose the model.
    preset = preset or suggest_preset(statistics.pairs)
    vocab_size = suggest_vocabulary(statistics)
    say(f"preset {preset}, vocabulary of {vocab_size:,} pieces")

    # Validation text: the user's, or the end of the training text.
    validation_files: Files
    if validation is None:
        files, validation_files = _hold_out(folder, files, languages, statistics.pairs, say)
    else:
        validation_files = validation
        _count(validation_files, languages)

    text = recipe_text(folder, languages, files, validation_files, preset, vocab_size)
    with whole_file(path) as file:
        file.write(text.encode())
    return path


def _refuse_unwritable_name(file: Path) -> None:
    try:
        str(file).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"the name of {file} is not UTF-8, so that a recipe cannot contain it; rename the file"
        ) from None


def _count(files: Files, languages: tuple[str, str]) -> Statistics:
    """Count the pairs of a text, and the words and characters of its first pairs."""
    pairs = 0
    sample: list[str] = []
    for chunk in read_files(files, languages):
        if pairs < SAMPLE:
            sample += chunk.sources
            sample += chunk.targets
        pairs += len(chunk)
    statistics = measure_text(sample, pairs)
    if statistics.distinct_words == 0:
        raise DataError(f"there is no text in {file_names(files)}; expected one sentence per line")
    return statistics


def _hold_out(
    folder: Path, files: Files, languages: tuple[str, str], pairs: int, say: Say
) -> tuple[Files, Files]:
    """Write the last pairs to one pair of files and the others to another; return both."""
    # Two percent, but not fewer than 100 pairs where there are enough.
    held_out = min(MOST_HELD_OUT, max(pairs // 50, min(100, pairs // 10)))
    if held_out == 0:
        raise DataError(
            f"too few pairs in {file_names(files)} to hold out some for validation ({pairs}); add "
            "text, or pass --valid-source and --valid-target"
        )
    training, validation = _free_file_names(folder, languages)
    with ExitStack() as stack:
        training_files = [stack.enter_context(whole_file(path)) for path in training]
        validation_files = [stack.enter_context(whole_file(path)) for path in validation]
        written = 0
        for chunk in read_files(files, languages):
            for pair in zip(chunk.sources, chunk.targets, strict=True):
                outputs = training_files if written < pairs - held_out else validation_files
                for file, text in zip(outputs, pair, strict=True):
                    file.write(_as_line(text))
                written += 1
    say(
        f"the last {held_out:,} pairs are held out for validation: {file_names(validation)}; "
        f"the other {pairs - held_out:,} are copied to {file_names(training)}"
    )
    return training, validation


def _as_line(text: str) -> bytes:
    """Return a text as a line of a file: a cell of JSON or Parquet may contain line breaks.

    Half a UTF-16 pair, which JSON may contain too, becomes U+FFFD, so that cleaning drops it.
    """
    valid = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return valid.replace("\n", " ").encode() + b"\n"


def _free_file_names(folder: Path, languages: tuple[str, str]) -> tuple[Files, Files]:
    """Return names for training and validation text that no file in the folder has."""
    suffixes = languages if languages[0] != languages[1] else ("source", "target")
    for number in count(1):
        ending = "" if number == 1 else f"-{number}"
        training = tuple(folder / f"train{ending}.{suffix}" for suffix in suffixes)
        validation = tuple(folder / f"valid{ending}.{suffix}" for suffix in suffixes)
        if not any(path.exists() for path in (*training, *validation)):
            return training, validation
    raise AssertionError("numbers do not end")
