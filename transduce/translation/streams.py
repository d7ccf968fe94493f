"""Lines in, lines out: `transduce translate` over files and pipes, in order, with bounded memory."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from transduce.data.readers.compression import BLOCK, blocks, compressed, is_compressed
from transduce.data.text_folder import whole_file
from transduce.errors import InputError
from transduce.translation.chunks import chunks, sizes
from transduce.translation.result import Translation
from transduce.translation.translator import Translator

Errors = Literal["strict", "replace"]


@dataclass(frozen=True)
class Format:
    """What stands on a line: a text, or one column of several; and what is written for it."""

    column: int | None = None  # of tab-separated values, from 1; the others are kept
    errors: Errors = "strict"
    json: bool = False
    alignments: bool = False
    prefix: str = ""  # how each translation has to begin

    def __post_init__(self) -> None:
        if self.column is not None and self.column < 1:
            raise InputError(f"column is {self.column}; columns count from 1")
        if self.column is not None and self.json:
            raise InputError(
                "a column's translation takes its place in the row; scores and alignments come as JSON"
            )

    def place(self, row: list[str]) -> int:
        """Where a row's text stands: in its column, or in an empty line."""
        return min(self.column or 1, len(row)) - 1


def translate_stream(
    translator: Translator, source: Path | None, target: Path | None, form: Format
) -> None:
    """Translate a file (None: stdin) line by line into a file (None: stdout). Notices go to stderr."""
    if source and target and target.exists() and source.samefile(target):
        raise InputError(f"{source} is both input and output; choose another output")
    with _created(target) as out, _progress(source, target) as advance:
        number = 0
        for lines in arriving(_blocks(source)):
            rows, mistake = list[list[str]](), None
            try:
                for line in lines:
                    rows.append(read_row(line, source, number + len(rows) + 1, form))
            except InputError as error:
                # What stands before a line that cannot be read is translated all the same.
                mistake = error
            texts = [row[form.place(row)] for row in rows]
            translations = translator.translate(
                texts, alignments=form.alignments, confidences=form.json, prefix=form.prefix
            )
            for row, translation in zip(rows, translations, strict=True):
                number += 1
                for notice in translation.notices:
                    print(f"transduce: line {number}: {notice}", file=sys.stderr)
                advance(len("\t".join(row).encode(errors="replace")) + 1)
                out.write(_written(row, translation, form).encode(errors="replace") + b"\n")
            if target is None:
                out.flush()
            if mistake:
                raise mistake


def print_translation(translator: Translator, text: str, form: Format) -> None:
    """Translate one text of a command line to stdout."""
    # The bytes that were typed.
    text = _decoded(text.encode(errors="surrogateescape"), "the text", form)
    translation = translator.translate(
        text, alignments=form.alignments, confidences=form.json, prefix=form.prefix
    )
    for notice in translation.notices:
        print(f"transduce: {notice}", file=sys.stderr)
    print(json.dumps(translation.to_json(), ensure_ascii=False) if form.json else translation.text)


def _written(row: list[str], translation: Translation, form: Format) -> str:
    if form.json:
        return json.dumps(translation.to_json(), ensure_ascii=False)
    # One line is one line: what the model may have made of it cannot move the lines after it.
    row[form.place(row)] = translation.text.replace("\n", " ").replace(
        "\t", " " if form.column else "\t"
    )
    return "\t".join(row)


def arriving(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines, which end at the byte \\n alone: few at first, then many, but none waits for one that is not there yet."""
    size, begun = sizes(), list[bytes]()  # parts of a line that has not ended
    for block in blocks:
        end, *lines = block.split(b"\n")
        begun.append(end)
        if not lines:
            continue
        there, begun = [b"".join(begun), *lines[:-1]], [lines[-1]]
        yield from chunks(there, size)
    if rest := b"".join(begun):
        yield [rest]


def read_row(line: bytes, source: Path | None, number: int, form: Format) -> list[str]:
    """The columns of a line, or its text alone, without byte-order mark and the \\r of \\r\\n."""
    line = line.removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    where = f"{source or 'stdin'}:{number}"
    text = _decoded(line, where, form)
    row = text.split("\t") if form.column else [text]
    if text.strip() and len(row) < (form.column or 1):
        columns = "1 column" if len(row) == 1 else f"{len(row)} columns"
        raise InputError(
            f"{where} has {columns}, separated by tabs; expected at least {form.column}"
        )
    return row


def _decoded(line: bytes, where: str, form: Format) -> str:
    try:
        return line.decode(errors=form.errors)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not UTF-8 (byte 0x{line[error.start]:02x} at {error.start + 1}); "
            "convert it, or go on with --errors replace"
        ) from None


def _blocks(source: Path | None) -> Iterable[bytes]:
    """The bytes of a file, unpacked if it is compressed; of stdin as soon as there are any."""
    return blocks(source) if source else iter(partial(sys.stdin.buffer.read1, BLOCK), b"")  # type: ignore[union-attr]


@contextmanager
def _created(target: Path | None) -> Iterator[BinaryIO]:
    if target is None:
        yield sys.stdout.buffer
        return
    if not target.parent.is_dir():
        raise InputError(
            f"{target.parent}, where {target.name} is to go, is not a folder; make it first"
        )
    with whole_file(target) as file, compressed(file, target) as out:
        yield out


@contextmanager
def _progress(source: Path | None, target: Path | None) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of the input, where a person watches and the translations do not scroll by."""
    if not sys.stderr.isatty() or (target is None and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        TextColumn("{task.fields[lines]:,} lines"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    size = os.path.getsize(source) if source and not is_compressed(source) else None
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, lines=0)
        lines = 0

        def advance(size: int) -> None:
            nonlocal lines
            lines += 1
            bar.update(task, advance=size, lines=lines)

        yield advance
