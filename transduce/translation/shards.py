"""Shards: a large text in pieces of many lines, translated in any order and joined in theirs.

The translation of a shard is a file in OUTPUT.partial that is whole or absent. What is there after
an interruption is not translated again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path

from transduce.data.readers.compression import blocks, is_uncompressed
from transduce.data.text_folder import whole_file
from transduce.errors import DataError
from transduce.translation.documents.text_encoding import Encoding, utf8_blocks
from transduce.translation.messages import whole_messages
from transduce.translation.streams import Format, arriving, created, read_row, translate_lines
from transduce.translation.translator import Translator

LINES = 2_000  # of a shard, or a few more


@dataclass(frozen=True)
class Shard:
    """Some consecutive lines of a text."""

    number: int  # from 0
    first_line: int  # from 1
    # Numbers of lines that are translated together. They are those of `translate_stream`, so that
    # the translation is the same even with an engine that rounds by the batch.
    chunks: list[int]
    start: int  # the position of its first byte in the text
    size: int  # in bytes
    sha256: str

    @property
    def lines(self) -> int:
        """The number of lines."""
        return sum(self.chunks)

    def file(self, folder: Path) -> Path:
        """Return the file of the translation."""
        return folder / f"{self.number:07}.txt"


def finished_shards(folder: Path) -> list[Path]:
    """Return the files of all shards that are translated, of this or of other work."""
    return list(folder.glob("*.txt"))


def text_blocks(source: Path, form: Format) -> tuple[Encoding, Iterator[bytes]]:
    """Return the encoding of a text, and its blocks in UTF-8."""
    return utf8_blocks(blocks(source), str(source), form.errors)


def cut(source: Path, form: Format) -> Iterator[Shard]:
    """Yield the shards of a text; every line must be readable."""
    first_line = 1
    start = 0
    _, found = text_blocks(source, form)
    for number, (lines, sizes) in enumerate(_grouped(whole_messages(arriving(found)))):
        text = b"".join(lines)
        # Now, and not when hours of work on other lines are done.
        _check_encoding(lines, source, first_line, form)
        digest = hashlib.sha256(text).hexdigest()
        yield Shard(number, first_line, sizes, start, len(text), digest)
        first_line += len(lines)
        start += len(text)


def _grouped(chunks: Iterable[list[bytes]]) -> Iterator[tuple[list[bytes], list[int]]]:
    """Yield the lines of so many chunks that they fill a shard, and the sizes of these chunks."""
    lines: list[bytes] = []
    sizes: list[int] = []
    for chunk in chunks:
        lines += chunk
        sizes.append(len(chunk))
        if len(lines) >= LINES:
            yield lines, sizes
            lines = []
            sizes = []
    if lines:
        yield lines, sizes


def _check_encoding(lines: Sequence[bytes], source: Path, first_line: int, form: Format) -> None:
    """Raise an InputError that names the first line that cannot be read."""
    if form.errors != "strict":
        return
    try:
        b"".join(lines).decode()
    except UnicodeDecodeError:
        for number, line in enumerate(lines, start=first_line):
            read_row(line, source, number, form, notify=lambda notice: None)


def text_sha256(shards: Sequence[Shard]) -> str:
    """Return a hash of the whole text."""
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(shard.sha256.encode())
    return digest.hexdigest()


def seekable_text(source: Path, folder: Path, form: Format) -> Path:
    """Return a file with the text in plain UTF-8: the source, or else a copy in this folder."""
    encoding, found = text_blocks(source, form)
    if is_uncompressed(source) and not encoding.mark:
        return source
    copy = folder / "text"
    if not copy.exists():
        with whole_file(copy) as file:
            file.writelines(found)
    return copy


def read_shard(text: Path, shard: Shard) -> list[bytes]:
    """Return the lines of a shard, and refuse a file that is not the one that was cut."""
    with text.open("rb") as file:
        file.seek(shard.start)
        content = file.read(shard.size)
    if hashlib.sha256(content).hexdigest() != shard.sha256:
        raise DataError(
            f"{text} has changed since the command began: line {shard.first_line:,} and the "
            "following ones are others; start again"
        )
    return BytesIO(content).readlines()


def translate_shard(
    translator: Translator, shard: Shard, text: Path, source: Path, form: Format, folder: Path
) -> list[str]:
    """Write the translation of a shard, and return the notices about its lines.

    Args:
        translator: The model and the search.
        shard: The lines to translate.
        text: The uncompressed text.
        source: The file that messages name.
        form: The format of the lines.
        folder: Where the translation is written.
    """
    notices: list[str] = []
    translated: list[bytes] = []
    lines = iter(read_shard(text, shard))
    for size in shard.chunks:
        number = shard.first_line + len(translated)
        chunk = list(islice(lines, size))
        translated += translate_lines(
            translator, chunk, source, number, form, notify=notices.append
        )
    with whole_file(shard.file(folder)) as file:
        file.writelines(translated)
    return notices


def join(shards: Sequence[Shard], folder: Path, target: Path, encoding: Encoding) -> None:
    """Write the translations of all shards into one file, in order, and remove the folder."""
    with created(target) as out:
        out.write(encoding.mark)
        for shard in shards:
            out.write(encoding.from_utf8(_read_translation(shard, folder)))
    shutil.rmtree(folder)


def _read_translation(shard: Shard, folder: Path) -> bytes:
    path = shard.file(folder)
    try:
        translation = path.read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing, though its lines were translated; expected a folder that all "
            "machines share"
        ) from None
    # The last line of a text may lack its end.
    lines = translation.count(b"\n") + (not translation.endswith(b"\n"))
    if lines != shard.lines:
        raise DataError(
            f"{path} has {lines:,} lines, expected {shard.lines:,}; remove it and run the command "
            "again: it translates these lines again"
        )
    return translation
