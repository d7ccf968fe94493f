"""Read the sentence pairs of a corpus from files of any supported format, in constant memory."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from pathlib import Path

from transduce.config import CorpusConfig
from transduce.data.pairs import Chunk, Pair
from transduce.data.readers.compression import plain_suffix
from transduce.data.readers.delimited import read_jsonl, read_tsv
from transduce.data.readers.lines import Lines, Remark, read_lines
from transduce.data.readers.parquet import read_parquet
from transduce.data.readers.tmx import read_tmx, tmx_languages
from transduce.errors import DataError

Reader = Callable[[Path, tuple[str, str], bool], Iterator[Chunk]]

# Formats that hold both sides in one file.
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
    """Yield every pair of a corpus, in order."""
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
    """Yield every pair of a corpus, in order, some thousands at a time.

    Args:
        corpus: Its paths or globs, relative to `base`.
        source_language: The code that names a column or a TMX variant. It also helps to guess the
            encoding of a file that is not UTF-8.
        target_language: Likewise.
        base: The folder that relative paths start from.
        strict: Whether bytes that are not UTF-8 are an error. If not, they are passed on for the
            doctor to report.
    """
    languages = (source_language, target_language)
    for files in corpus_files(corpus, base):
        if len(files) == 2:
            yield from _read_parallel(files[0], files[1], languages, strict)
        else:
            reader = CONTAINERS[plain_suffix(files[0])]
            yield from reader(files[0], languages, strict)


def corpus_files(corpus: CorpusConfig, base: Path) -> list[tuple[Path, ...]]:
    """Return the files of a corpus, with globs expanded: (source, target) or (container,)."""
    if not corpus.target:
        files: list[Path] = []
        for pattern in corpus.source:
            is_folder = (base / pattern).is_dir()
            files += container_files(base / pattern) if is_folder else _matches(pattern, base)
        for path in files:
            if plain_suffix(path) not in CONTAINERS:
                known = ", ".join(CONTAINERS)
                raise DataError(
                    f"{path} holds one side only; name its parallel file too, or use a file that "
                    f"holds both sides ({known})"
                )
        return [(path,) for path in files]
    pairs: list[tuple[Path, ...]] = []
    for source, target in zip(corpus.source, corpus.target, strict=True):
        sources = _matches(source, base)
        targets = _matches(target, base)
        if len(sources) != len(targets):
            found = f"{source} matches {len(sources):,} files but {target} matches {len(targets):,}"
            raise DataError(f"{found}; they must be parallel")
        pairs += zip(sources, targets, strict=True)
    return pairs


def container_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold both sides, such as translation memories."""
    files = sorted(path for path in folder.iterdir() if plain_suffix(path) in CONTAINERS)
    if not files:
        raise DataError(
            f"{folder} is a folder without a file that holds both sides ({', '.join(CONTAINERS)}); "
            "name the files"
        )
    return files


def container_languages(path: Path) -> tuple[str, str] | None:
    """Return the languages that a TMX file names, or the first one of a folder; None for others."""
    files = container_files(path) if path.is_dir() else [path]
    if plain_suffix(files[0]) != ".tmx" or not files[0].is_file():
        return None
    return tmx_languages(files[0])


def _matches(pattern: str, base: Path) -> list[Path]:
    """Return the files of a path or glob. A plain path need not exist: its reader checks."""
    if (base / pattern).exists() or not glob.has_magic(pattern):
        return [base / pattern]
    paths = [base / name for name in glob.glob(pattern, root_dir=base, recursive=True)]
    files = sorted(path for path in paths if path.is_file())
    if not files:
        raise DataError(f"{base / pattern} matches no file; check data.corpora")
    return files


def _read_parallel(
    source: Path, target: Path, languages: tuple[str, str], strict: bool
) -> Iterator[Chunk]:
    """Read two parallel files, whose blocks of lines have different sizes."""
    source_side = _ParallelSide(source, languages[0], strict)
    target_side = _ParallelSide(target, languages[1], strict)
    line = 1
    while True:
        remarks = source_side.read_ahead() + target_side.read_ahead()
        size = min(len(source_side.texts), len(target_side.texts))
        if not size:
            break
        numbers = range(line, line + size)
        sources = source_side.take(size)
        targets = target_side.take(size)
        yield Chunk(sources, targets, numbers, str(source), str(target), remarks)
        line += size

    if source_side.texts or target_side.texts:
        source_lines = source_side.count_all()
        target_lines = target_side.count_all()
        raise DataError(
            f"{target} has {target_lines:,} lines but {source} has {source_lines:,}; "
            "they must be parallel"
        )


class _ParallelSide:
    """One of two parallel files, and the lines of it that were read but not yet paired."""

    def __init__(self, path: Path, language: str, strict: bool) -> None:
        self.texts: list[str] = []
        self._reader = read_lines(path, language, strict)
        self._taken = 0

    def read_ahead(self) -> tuple[Remark, ...]:
        """Read the next lines if there are none, and return what the reader remarks."""
        if self.texts:
            return ()
        lines = next(self._reader, Lines(0, [], ()))
        self.texts = lines.texts
        return lines.remarks

    def take(self, size: int) -> list[str]:
        """Remove and return the first lines."""
        taken = self.texts[:size]
        self.texts = self.texts[size:]
        self._taken += size
        return taken

    def count_all(self) -> int:
        """Read to the end of the file and return its number of lines."""
        rest = sum(len(lines.texts) for lines in self._reader)
        return self._taken + len(self.texts) + rest
