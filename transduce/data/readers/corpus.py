"""Files to sentence pairs, whatever the container, in constant memory. Files that are not parallel are an error."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from pathlib import Path

from transduce.config import CorpusConfig
from transduce.data.pairs import Chunk, Pair
from transduce.data.readers.compression import plain_suffix
from transduce.data.readers.containers import read_jsonl, read_parquet, read_tsv
from transduce.data.readers.lines import Lines, Remark, read_lines
from transduce.data.readers.tmx import read_tmx
from transduce.errors import DataError

Reader = Callable[[Path, tuple[str, str], bool], Iterator[Chunk]]
CONTAINERS: dict[str, Reader] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".tmx": read_tmx,
    ".parquet": read_parquet,
}


def read_pairs(
    corpus: CorpusConfig,
    source_language: str,
    target_language: str,
    base: Path,
    *,
    strict: bool = True,
) -> Iterator[Pair]:
    """Every pair of a corpus, in order."""
    for chunk in read_chunks(corpus, source_language, target_language, base, strict=strict):
        yield from chunk.pairs()


def read_chunks(
    corpus: CorpusConfig,
    source_language: str,
    target_language: str,
    base: Path,
    *,
    strict: bool = True,
) -> Iterator[Chunk]:
    """Every pair of a corpus, in order, some thousands at a time.

    Args:
        corpus: Its paths or globs, relative to `base`.
        source_language: Its code finds the column (or the TMX variant), and what a damaged file is likely to be.
        target_language: Likewise.
        base: The folder that relative paths start from: the recipe's.
        strict: Bytes that are not UTF-8 are an error, instead of something for the doctor to report.
    """
    languages = (source_language, target_language)
    for files in corpus_files(corpus, base):
        if len(files) == 2:
            yield from _read_parallel(files[0], files[1], languages, strict)
        else:
            yield from CONTAINERS[plain_suffix(files[0])](files[0], languages, strict)


def corpus_files(corpus: CorpusConfig, base: Path) -> list[tuple[Path, ...]]:
    """The files of a corpus with its globs filled in: (source, target), or (container,)."""
    if not corpus.target:
        files = [path for pattern in corpus.source for path in _matches(pattern, base)]
        for path in files:
            if plain_suffix(path) not in CONTAINERS:
                known = ", ".join(CONTAINERS)
                raise DataError(
                    f"{path} holds one side only; name its parallel file too, or give one of {known}"
                )
        return [(path,) for path in files]
    pairs: list[tuple[Path, ...]] = []
    for source, target in zip(corpus.source, corpus.target, strict=True):
        sources, targets = _matches(source, base), _matches(target, base)
        if len(sources) != len(targets):
            found = f"{source} matches {len(sources):,} files but {target} matches {len(targets):,}"
            raise DataError(f"{found}; they must be parallel")
        pairs += zip(sources, targets, strict=True)
    return pairs


def _matches(pattern: str, base: Path) -> list[Path]:
    if (base / pattern).exists() or not glob.has_magic(pattern):
        return [base / pattern]  # whether it can be opened is for the reader to say
    found = sorted(
        path
        for name in glob.glob(pattern, root_dir=base, recursive=True)
        if (path := base / name).is_file()
    )
    if not found:
        raise DataError(f"{base / pattern} matches no file")
    return found


def _read_parallel(
    source: Path, target: Path, languages: tuple[str, str], strict: bool
) -> Iterator[Chunk]:
    readers = [
        read_lines(path, code, strict)
        for path, code in zip((source, target), languages, strict=True)
    ]
    waiting: list[list[str]] = [[], []]
    done = 0
    while True:
        remarks: tuple[Remark, ...] = ()
        for side, reader in enumerate(readers):
            if not waiting[side]:
                lines = next(reader, Lines(0, [], ()))
                waiting[side] = lines.texts
                remarks += lines.remarks
        size = min(map(len, waiting))
        if not size:
            break
        numbers = range(done + 1, done + size + 1)
        yield Chunk(
            waiting[0][:size], waiting[1][:size], numbers, str(source), str(target), remarks
        )
        waiting = [texts[size:] for texts in waiting]
        done += size
    if any(waiting):
        counts = [
            done + len(texts) + sum(len(lines.texts) for lines in reader)
            for texts, reader in zip(waiting, readers, strict=True)
        ]
        found = f"{target} has {counts[1]:,} lines but {source} has {counts[0]:,}"
        raise DataError(f"{found}; they must be parallel")
