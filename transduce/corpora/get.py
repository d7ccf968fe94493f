"""Get a known corpus: download and extract it, and write a recipe that trains on it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from transduce.corpora.archive import Damaged, unpack
from transduce.corpora.catalogue import PHRASES, Entry, Part, Text, find
from transduce.corpora.download import Patience, fetch
from transduce.corpora.lockfile import Lock
from transduce.corpora.phrases import write_phrases
from transduce.data.text_folder import RECIPE, SECTIONS, whole_file, write_recipe
from transduce.errors import ConfigError, DataError

DOWNLOADS = "downloads"


def get(
    name: str,
    folder: Path,
    *,
    languages: tuple[str, str] = ("", ""),
    mirror: Path | None = None,
    accept_changes: bool = False,
    patience: Patience | None = None,
    pairs: int = 50_000,
    seed: int = 1,
) -> Path:
    """Write a corpus as text files, and return the path of the recipe that trains on it.

    Args:
        name: The name of the corpus in the catalogue, or `phrases`.
        folder: The folder for the text files.
        languages: Source and target; "" means the default of the corpus.
        mirror: A folder that has the downloads already.
        accept_changes: Whether to use downloads that differ from the lock file.
        patience: How long to wait for servers.
        pairs: How many pairs `phrases` generates.
        seed: The seed of `phrases`.
    """
    if name == PHRASES:
        return write_phrases(folder, *_direction(("en", "de"), languages), pairs, seed)
    entry = find(name)
    direction = _direction(entry.languages, languages)
    if set(direction) != set(entry.languages):
        raise ConfigError(
            f"{name} holds {' and '.join(entry.languages)}, not {' to '.join(direction)}"
        )

    # The recipe is written last: where there is one, the corpus is complete.
    lock = Lock(folder, accept_changes=accept_changes)
    names = [f"{part.name}.{language}" for part in entry.parts for language in entry.languages]
    lock.claim([*names, RECIPE])
    (folder / RECIPE).unlink(missing_ok=True)
    paths: dict[str, Path] = {}
    for part in entry.parts:
        for text in entry.texts(part):
            if text.file_name not in paths:
                paths[text.file_name] = fetch(
                    text.address,
                    text.file_name,
                    folder / DOWNLOADS,
                    lock,
                    mirror=mirror,
                    patience=patience,
                )
        _extract(entry, part, paths, folder, mirror, accept_changes)
        lock.save()  # only files that were read to their end are locked

    corpora = {}
    for split in SECTIONS:
        corpora[split] = [part.name for part in entry.parts if part.split == split]
    settings = f"\n[data.tokenizer]\nvocab_size = {entry.vocab_size}\n"
    return write_recipe(folder, direction, corpora, preset=entry.preset, settings=settings)


def _direction(known: tuple[str, str], languages: tuple[str, str]) -> tuple[str, str]:
    """Return source and target, with the defaults of the corpus where none is given."""
    first, second = known
    source, target = languages
    if not source:
        source = second if target == first else first
    if not target:
        target = first if source == second else second
    return source, target


def _extract(
    entry: Entry,
    part: Part,
    paths: dict[str, Path],
    folder: Path,
    mirror: Path | None,
    accept_changes: bool,
) -> None:
    """Write the two sides of a part. A damaged download is deleted, unless it is in a mirror."""
    texts = entry.texts(part)
    archives = [paths[text.file_name] for text in texts]
    outputs = [folder / f"{part.name}.{language}" for language in entry.languages]
    expected_pairs = None if accept_changes else part.pairs
    try:
        _write_parallel(texts, archives, outputs, expected_pairs)
    except Damaged as error:
        if mirror:
            raise DataError(f"{error}; replace it in {mirror}") from None
        for archive in archives:
            archive.unlink(missing_ok=True)
        raise DataError(
            f"{error}; it was deleted: run the same command to download it again"
        ) from None


def _write_parallel(
    texts: Sequence[Text],
    archives: Sequence[Path],
    outputs: Sequence[Path],
    expected_pairs: int | None,
) -> None:
    """Write two parallel files, if they have as many lines as expected.

    Args:
        texts: The two sides, as the catalogue describes them.
        archives: The downloads of the two sides, which may be the same file.
        outputs: The two files to write.
        expected_pairs: How many lines they must have, if that is known.
    """
    names = " and ".join(dict.fromkeys(archive.name for archive in archives))
    print(f"unpacking {names} into {outputs[0].name} and {outputs[1].name}", file=sys.stderr)
    with ExitStack() as stack:
        files = [stack.enter_context(whole_file(output)) for output in outputs]

        # An archive that holds both sides is read only once.
        counts: dict[tuple[Path, str], int] = {}
        for archive in dict.fromkeys(archives):
            wanted: dict[str, BinaryIO] = {}
            for text, text_archive, file in zip(texts, archives, files, strict=True):
                if text_archive == archive:
                    wanted[text.member] = file
            for member, lines in unpack(archive, wanted).items():
                counts[archive, member] = lines

        # An error here discards both files.
        first_lines = counts[archives[0], texts[0].member]
        second_lines = counts[archives[1], texts[1].member]
        if first_lines != second_lines:
            raise Damaged(
                f"{names} gave {first_lines:,} lines for {outputs[0].name} but "
                f"{second_lines:,} for {outputs[1].name}"
            )
        if expected_pairs is not None and first_lines != expected_pairs:
            raise DataError(
                f"{names} gave {first_lines:,} pairs for {outputs[0].stem}, but it should have "
                f"{expected_pairs:,}; delete {archives[0]} to download it again, or pass "
                "--accept-changes to use the new edition"
            )
    print(f"{outputs[0].stem}: {first_lines:,} pairs", file=sys.stderr)
