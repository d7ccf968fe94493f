"""A known corpus as a folder of text: fetched, unpacked, counted, and named in a recipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from transduce.corpora.archive import Damaged, unpack
from transduce.corpora.catalogue import PHRASES, Text, find
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
    """Fetch a corpus into a folder of text files; the path of the recipe that trains on it.

    `languages` are source and target; "" stands for the corpus's own. `pairs` and `seed` are for `phrases` alone.
    """
    if name == PHRASES:
        return write_phrases(folder, *_direction(("en", "de"), languages), pairs, seed)
    entry = find(name)
    direction = _direction(entry.languages, languages)
    if set(direction) != set(entry.languages):
        raise ConfigError(
            f"{name} holds {' and '.join(entry.languages)}, not {' to '.join(direction)}"
        )
    lock = Lock(folder, accept_changes=accept_changes)
    (folder / RECIPE).unlink(missing_ok=True)
    paths: dict[str, Path] = {}
    for part in entry.parts:
        texts = entry.texts(part)
        for text in texts:
            if text.file_name not in paths:
                path = fetch(
                    text.address,
                    text.file_name,
                    folder / DOWNLOADS,
                    lock,
                    mirror=mirror,
                    patience=patience,
                )
                paths[text.file_name] = path
        targets = [folder / f"{part.name}.{language}" for language in entry.languages]
        expected = None if accept_changes else part.pairs
        try:
            _write(texts, [paths[text.file_name] for text in texts], targets, expected)
        except Damaged as error:
            if mirror:
                raise DataError(f"{error}; replace it in {mirror}") from None
            for text in texts:
                paths[text.file_name].unlink(missing_ok=True)
            raise DataError(
                f"{error}; it was deleted: run the same command to fetch it again"
            ) from None
        lock.save()  # not before: what is locked has been read to its end
    corpora = {
        split: [part.name for part in entry.parts if part.split == split] for split in SECTIONS
    }
    size = f"vocab_size = {entry.vocab_size}\n"
    settings = f"\n[data.tokenizer]\n{size}\n[model]\n{size}"
    return write_recipe(folder, direction, corpora, preset=entry.preset, settings=settings)


def _direction(known: tuple[str, str], languages: tuple[str, str]) -> tuple[str, str]:
    """Source and target, with what was left open filled in."""
    (first, second), (source, target) = known, languages
    source = source or (second if target == first else first)
    return source, target or (first if source == second else second)


def _write(
    texts: Sequence[Text], paths: Sequence[Path], targets: Sequence[Path], expected: int | None
) -> None:
    """Write the two sides of a part, unless they turn out not to be parallel."""
    sources = " and ".join(dict.fromkeys(path.name for path in paths))
    print(f"unpacking {sources} into {targets[0].name} and {targets[1].name}", file=sys.stderr)
    with ExitStack() as stack:
        files = [stack.enter_context(whole_file(target)) for target in targets]
        counts: dict[tuple[Path, str], int] = {}
        for path in dict.fromkeys(paths):
            wanted = {
                text.member: file
                for text, at, file in zip(texts, paths, files, strict=True)
                if at == path
            }
            counts |= {(path, member): lines for member, lines in unpack(path, wanted).items()}
        first, second = (counts[path, text.member] for path, text in zip(paths, texts, strict=True))
        if first != second:
            raise Damaged(
                f"{sources} gave {first:,} lines for {targets[0].name} but {second:,} for {targets[1].name}"
            )
        if expected is not None and first != expected:
            raise DataError(
                f"{sources} gave {first:,} pairs for {targets[0].stem}, but {expected:,} are known to be there; delete "
                f"{paths[0]} to fetch it again, or pass --accept-changes if a new edition is wanted"
            )
    print(f"{targets[0].stem}: {first:,} pairs", file=sys.stderr)
