"""Write a cleaned corpus: a folder with the text, and every dropped pair with its reason.

The folder appears when it is complete.
"""

from __future__ import annotations

import contextlib
import itertools
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
from transduce.storage.disk import describe_failure
from transduce.storage.lock import clear_work_folder, lock_work_folder

DROPPED = "dropped.tsv"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@contextlib.contextmanager
def cleaned_folder(folder: Path, languages: tuple[str, str]) -> Iterator[CleanedCorpora]:
    """Write the files of a folder, which appears when the block ends without an error.

    If the block fails, or the writer is told to discard the files, nothing remains.
    """
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
        reason = describe_failure(error)
        raise DataError(
            f"{folder} cannot be written: {reason}; choose another folder, or make room"
        ) from None


def refuse_existing(path: Path) -> None:
    """Raise an error if a path is a file, or a folder that is not empty."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists():
        raise DataError(f"{path} exists already and is never overwritten; choose another name")


def write_whole(path: Path, text: str) -> None:
    """Write a new file, which appears only when it is complete."""
    refuse_existing(path)
    with whole_file(path) as file:
        file.write(text.encode())


def try_writing(path: Path) -> None:
    """Raise the error of `write_whole` before the long work whose result is to be written."""
    write_whole(path, "")
    path.unlink()


class CleanedCorpora:
    """Writes two files for each corpus, named after it, and one table of all dropped pairs."""

    def __init__(
        self, folder: Path, languages: tuple[str, str], files: contextlib.ExitStack
    ) -> None:
        """Write into this folder, and close the files with `files`."""
        self._folder = folder
        self._suffixes = languages if languages[0] != languages[1] else ("source", "target")
        self._files = files
        self.discarded = False
        self._sides: list[BinaryIO] = []
        self._dropped = self._open(DROPPED)
        self._dropped.write(b"reason\tfile\tline\tsource\ttarget\n")

    def begin(self, corpus: CorpusConfig) -> None:
        """Open the files of a corpus, to which the following pairs belong."""
        # Name them after the corpus, or after its first file without its suffixes.
        path = Path(corpus.source[0])
        compressed = plain_suffix(path) != path.suffix.lower()
        stem = path.name.removesuffix(path.suffix) if compressed else path.name
        name = re.sub(r"[^\w.-]+", "_", corpus.name or Path(stem).stem)

        # Add a number if another corpus has that name.
        taken = [file.name for file in self._folder.iterdir()]
        unique_name = name
        number = 1
        while f"{unique_name}.{self._suffixes[0]}" in taken:
            number += 1
            unique_name = f"{name}-{number}"
        self._sides = [self._open(f"{unique_name}.{suffix}") for suffix in self._suffixes]

    def write(self, chunk: Chunk, reasons: list[str | None]) -> None:
        """Write the pairs without a reason to the corpus, and the others to the table."""
        kept = [reason is None for reason in reasons]
        for file, texts in zip(self._sides, (chunk.sources, chunk.targets), strict=True):
            kept_texts = itertools.compress(texts, kept)
            lines = [text.replace("\n", " ") + "\n" for text in kept_texts]
            file.write("".join(lines).encode("utf-8", "replace"))
        for pair, reason in zip(chunk.pairs(), reasons, strict=True):
            if reason:
                source = pair.source.translate(_ESCAPES)
                target = pair.target.translate(_ESCAPES)
                row = "\t".join((reason, pair.file, str(pair.line), source, target))
                self._dropped.write(f"{row}\n".encode("utf-8", "backslashreplace"))

    def discard(self) -> None:
        """Write nothing after all, because a part of the corpora could not be read."""
        self.discarded = True

    def _open(self, name: str) -> BinaryIO:
        return self._files.enter_context((self._folder / name).open("xb"))
