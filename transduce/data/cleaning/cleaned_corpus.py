"""The cleaned corpus, a folder that is there whole or not at all: text, and every dropped pair with its reason."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from transduce.config import CorpusConfig
from transduce.data.pairs import Chunk
from transduce.data.readers.compression import plain_suffix
from transduce.data.text_folder import whole_file
from transduce.errors import DataError
from transduce.storage.lock import clear_work_folder, lock_work_folder

DROPPED = "dropped.tsv"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@contextlib.contextmanager
def cleaned_folder(folder: Path, languages: tuple[str, str]) -> Iterator[CleanedCorpora]:
    """A writer whose files appear in `folder` when the block ends well, unless discarded; else nothing is left."""
    refuse_existing(folder)
    work = folder.with_name(f".{folder.name}.unfinished")
    try:
        with lock_work_folder(work, "doctor"), contextlib.ExitStack() as ending:
            ending.callback(shutil.rmtree, work, ignore_errors=True)
            clear_work_folder(work)
            (work / "cleaned").mkdir()
            with contextlib.ExitStack() as files:
                writer = CleanedCorpora(work / "cleaned", languages, files)
                yield writer
            if not writer.discarded:
                (work / "cleaned").rename(folder)
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written: {error.strerror}; nothing is left of it"
        ) from None


def refuse_existing(path: Path) -> None:
    """Nothing is written over: a file, or a folder with something in it."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists():
        raise DataError(f"{path} exists already; name a new one, nothing is written over")


def write_whole(path: Path, text: str) -> None:
    """A small file, there whole or not at all."""
    refuse_existing(path)
    with whole_file(path) as file:
        file.write(text.encode())


def try_writing(path: Path) -> None:
    """Refuse at the start of long work what `write_whole` would refuse at its end."""
    write_whole(path, "")
    path.unlink()


class CleanedCorpora:
    """Two files for each corpus, named after it, and one table of what was dropped."""

    def __init__(
        self, folder: Path, languages: tuple[str, str], files: contextlib.ExitStack
    ) -> None:
        self._folder = folder
        self._suffixes = languages if languages[0] != languages[1] else ("source", "target")
        self._files = files
        self.discarded = False
        self._sides: list[BinaryIO] = []
        self._dropped = self._open(DROPPED)
        self._dropped.write(b"reason\tfile\tline\tsource\ttarget\n")

    def begin(self, corpus: CorpusConfig) -> None:
        """The pairs that follow belong to this corpus."""
        path = Path(corpus.source[0])
        stem = path.name.removesuffix(
            path.suffix if plain_suffix(path) != path.suffix.lower() else ""
        )
        name = re.sub(r"[^\w.-]+", "_", corpus.name or Path(stem).stem)
        taken = [file.name for file in self._folder.iterdir()]
        number = next(
            n
            for n in range(1, len(taken) + 2)
            if f"{_numbered(name, n)}.{self._suffixes[0]}" not in taken
        )
        self._sides = [
            self._open(f"{_numbered(name, number)}.{suffix}") for suffix in self._suffixes
        ]

    def write(self, chunk: Chunk, reasons: list[str | None]) -> None:
        """Write the pairs without a reason to the corpus, the others to the table."""
        for file, texts in zip(self._sides, (chunk.sources, chunk.targets), strict=True):
            kept = [
                text.replace("\n", " ")
                for text, reason in zip(texts, reasons, strict=True)
                if reason is None
            ]
            file.write("".join(f"{text}\n" for text in kept).encode("utf-8", "replace"))
        for pair, reason in zip(chunk.pairs(), reasons, strict=True):
            if reason:
                row = (
                    reason,
                    pair.file,
                    str(pair.line),
                    *(text.translate(_ESCAPES) for text in pair[:2]),
                )
                self._dropped.write(("\t".join(row) + "\n").encode("utf-8", "backslashreplace"))

    def discard(self) -> None:
        """Leave nothing: a part of the corpora could not be read."""
        self.discarded = True

    def _open(self, name: str) -> BinaryIO:
        return self._files.enter_context((self._folder / name).open("xb"))


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
