"""Translation of files and pipes line by line, in order and with bounded memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from transduce.data.readers.compression import BLOCK, blocks, compressed
from transduce.data.text_folder import whole_file
from transduce.errors import InputError
from transduce.translation.chunks import chunks, sizes
from transduce.translation.documents.formats import refuse_other_content
from transduce.translation.documents.text_encoding import Encoding, utf8_blocks
from transduce.translation.messages import group_lines, whole_messages
from transduce.translation.result import Translation
from transduce.translation.stream_progress import Progress, show_progress
from transduce.translation.translator import Translator

Errors = Literal["strict", "replace"]
Notify = Callable[[str], None]  # called with each notice about a line
LONG_LINE = 100_000  # characters: progress is shown within a line, not only after it


@dataclass(frozen=True)
class Format:
    """The format of input and output lines: a text, or one of several columns."""

    column: int | None = None  # the tab-separated column to translate, from 1; others are kept
    errors: Errors = "strict"
    json: bool = False
    alignments: bool = False
    prefix: str = ""  # the text with which each translation must begin

    def __post_init__(self) -> None:
        if self.column is not None and self.column < 1:
            raise InputError(f"column is {self.column}; columns are counted from 1")
        if self.column is not None and self.json:
            raise InputError(
                "--column cannot be combined with JSON output: a row has no room for scores and "
                "alignments; leave out one of them"
            )

    def lacks_column(self, row: list[str]) -> bool:
        """Return whether a row has too few columns; it is copied."""
        return len(row) < (self.column or 1)

    def place(self, row: list[str]) -> int:
        """Return the index of the text in a row; an empty line has one column."""
        return min(self.column or 1, len(row)) - 1


def print_notice(notice: str) -> None:
    """Print a notice about a line to standard error."""
    print(f"transduce: {notice}", file=sys.stderr)


def translate_stream(
    translator: Translator, source: Path | None, target: Path | None, form: Format
) -> None:
    """Translate a file (None: stdin) into a file (None: stdout). Notices go to stderr.

    The encoding and the line ends stay; JSON is written as lines of UTF-8.
    """
    if source and target:
        refuse_same_file(source, target)
    with created(target) as out, show_progress(source, target) as progress:
        encoding, found = utf8_blocks(_blocks(source), str(source or "stdin"), form.errors)
        if form.json:
            encoding = Encoding()
        out.write(encoding.mark)
        number = 1
        for lines in whole_messages(arriving(found)):
            try:
                for line in translate_lines(
                    translator, lines, source, number, form, progress=progress
                ):
                    out.write(encoding.from_utf8(line))
            finally:
                if target is None:
                    out.flush()
            number += len(lines)


def translate_lines(
    translator: Translator,
    lines: Sequence[bytes],
    source: Path | None,
    number: int,
    form: Format,
    *,
    notify: Notify = print_notice,
    progress: Progress | None = None,
) -> Iterator[bytes]:
    """Yield the line to write for each line that was read, with the same line end.

    The lines of an ICU message are translated together. `number` is the number of the first line in
    `source`, counted from 1.
    """
    # Lines before one that cannot be read are still translated.
    rows: list[list[str]] = []
    mistake = None
    try:
        for line in lines:
            rows.append(read_row(line, source, number + len(rows), form, notify))
    except InputError as error:
        mistake = error

    progress = progress or Progress()
    texts = ["" if form.lacks_column(row) else row[form.place(row)] for row in rows]
    is_plain = not form.column and not form.json
    groups = [*group_lines(texts)] if is_plain else [range(i, i + 1) for i in range(len(texts))]
    texts = ["\n".join(texts[group.start : group.stop]) for group in groups]
    has_long_line = max(map(len, texts), default=0) >= LONG_LINE
    translations = translator.translate(
        texts,
        alignments=form.alignments,
        confidences=form.json,
        prefix=form.prefix,
        on_sentence=progress.on_sentence if has_long_line else None,
    )
    progress.finish_lines(lines)
    for group, text, translation in zip(groups, texts, translations, strict=True):
        for notice in translation.notices:
            notify(f"line {number}: {notice}")
        if len(group) == 1:
            written = [_format_line(rows[group.start], translation, form)]
        else:
            written = translation.text.split("\n")
            if len(written) != len(group):
                notify(f"line {number}: the model has not kept the message; it was copied")
                written = text.split("\n")
        for line_out, line in zip(written, lines[group.start : group.stop], strict=True):
            end = b"\n" if form.json else line[len(_without_end(line)) :]
            yield line_out.encode(errors="replace") + end
        number += len(group)
    if mistake:
        raise mistake


def print_translation(translator: Translator, text: str, form: Format) -> None:
    """Translate a text from the command line and print the translation."""
    # Python decodes arguments itself: recover the original bytes, which may not be UTF-8.
    text = _decoded(text.encode(errors="surrogateescape"), "the text", form)
    translation = translator.translate(
        text, alignments=form.alignments, confidences=form.json, prefix=form.prefix
    )
    for notice in translation.notices:
        print_notice(notice)
    print(json.dumps(translation.to_json(), ensure_ascii=False) if form.json else translation.text)


def _format_line(row: list[str], translation: Translation, form: Format) -> str:
    if form.json:
        return json.dumps(translation.to_json(), ensure_ascii=False)
    if form.lacks_column(row):
        return "\t".join(row)
    # A line stays one line, whatever the model has written, so that later lines keep their numbers.
    text = translation.text.replace("\n", " ")
    if form.column:
        text = text.replace("\t", " ")
    row[form.place(row)] = text
    return "\t".join(row)


def arriving(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield lines with their ends, which are after the byte \\n alone, in chunks that grow.

    A line is yielded as soon as it is complete, even if its chunk is not.
    """
    size = sizes()
    unfinished: list[bytes] = []  # parts of a line that has not ended
    for block in blocks:
        end, *lines = block.split(b"\n")
        unfinished.append(end)
        if not lines:
            continue
        complete = [line + b"\n" for line in (b"".join(unfinished), *lines[:-1])]
        unfinished = [lines[-1]]
        yield from chunks(complete, size)
    rest = b"".join(unfinished)
    if rest:
        yield [rest]


def read_row(
    line: bytes,
    source: Path | None,
    number: int,
    form: Format,
    notify: Notify = print_notice,
) -> list[str]:
    """Return the columns of a line, without its end."""
    where = f"{source or 'stdin'}:{number}"
    text = _decoded(_without_end(line), where, form)
    row = text.split("\t") if form.column else [text]
    if text.strip() and form.lacks_column(row):
        columns = "1 column" if len(row) == 1 else f"{len(row)} columns"
        notify(
            f"{where} has {columns} separated by tabs; expected at least {form.column}: "
            "the line was copied"
        )
    return row


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _decoded(line: bytes, where: str, form: Format) -> str:
    try:
        return line.decode(errors=form.errors)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not UTF-8 (byte 0x{line[error.start]:02x} at {error.start + 1}); "
            "convert it, or go on with --errors replace"
        ) from None


def _blocks(source: Path | None) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed if necessary, or of stdin as they arrive."""
    found = blocks(source) if source else iter(partial(sys.stdin.buffer.read1, BLOCK), b"")  # type: ignore[union-attr]
    first = next(found, b"")
    refuse_other_content(first, source.name if source else "stdin")
    yield first
    yield from found


def refuse_same_file(source: Path, target: Path) -> None:
    """Raise an InputError if a file would be replaced by its own translation."""
    if target.exists() and source.samefile(target):
        raise InputError(f"{source} is both the input and the output; choose another output file")


def refuse_missing_folder(target: Path) -> None:
    """Raise an InputError if the folder of a file does not exist."""
    if not target.parent.is_dir():
        raise InputError(
            f"{target.name} cannot be written: {target.parent} is not a folder; create it first"
        )


@contextmanager
def created(target: Path | None) -> Iterator[BinaryIO]:
    """Open a file that appears when it is complete, and compress what its name says."""
    if target is None:
        yield sys.stdout.buffer
        return
    refuse_missing_folder(target)
    with whole_file(target) as file, compressed(file, target) as out:
        yield out
