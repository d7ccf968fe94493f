"""Lines in, lines out: `transduce translate` over files and pipes, in order, with bounded memory."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from transduce.data.folder import whole_file
from transduce.decoding.translation import Translation
from transduce.decoding.translator import LAST_CHUNK, Translator
from transduce.errors import InputError

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
            raise InputError("a column's translation takes its place in the row; scores and alignments come as JSON")


def translate_stream(translator: Translator, source: Path | None, target: Path | None, form: Format) -> None:
    """Translate a file (None: stdin) line by line into a file (None: stdout). Notices go to stderr."""
    if source and target and target.exists() and source.samefile(target):
        raise InputError(f"{source} is both input and output; choose another output")
    with opened(source) as file, _created(target) as out, _progress(source, target) as advance:
        rows: deque[list[str]] = deque()  # of the lines that are being translated

        def texts() -> Iterator[str]:
            for number, line in enumerate(read_lines(file, source, form.errors), start=1):
                rows.append(line.split("\t") if form.column else [line])
                if form.column and form.column > len(rows[-1]):
                    raise InputError(f"line {number} has {len(rows[-1])} columns; expected at least {form.column}")
                yield rows[-1][(form.column or 1) - 1]

        at_once = 1 if source is None and sys.stdin.isatty() else LAST_CHUNK  # a person waits for each answer
        translations = translator.translate_lines(
            texts(), alignments=form.alignments, confidences=form.json, prefix=form.prefix, at_once=at_once
        )
        for number, translation in enumerate(translations, start=1):
            row = rows.popleft()
            for notice in translation.notices:
                print(f"transduce: line {number}: {notice}", file=sys.stderr)
            out.write(_written(row, translation, form).encode(errors="replace") + b"\n")
            if target is None:
                out.flush()
            advance(len("\t".join(row).encode(errors="replace")) + 1)


def print_translation(translator: Translator, text: str, form: Format) -> None:
    """Translate one text to stdout."""
    translation = translator.translate(text, alignments=form.alignments, confidences=form.json, prefix=form.prefix)
    for notice in translation.notices:
        print(f"transduce: {notice}", file=sys.stderr)
    print(json.dumps(translation.to_json(), ensure_ascii=False) if form.json else translation.text)


def _written(row: list[str], translation: Translation, form: Format) -> str:
    if form.json:
        return json.dumps(translation.to_json(), ensure_ascii=False)
    # One line is one line: what the model may have made of it cannot move the lines after it.
    row[(form.column or 1) - 1] = translation.text.replace("\n", " ").replace("\t", " " if form.column else "\t")
    return "\t".join(row)


def read_lines(file: BinaryIO, source: Path | None, errors: Errors) -> Iterator[str]:
    """The lines of UTF-8 text, split at the byte \\n alone, without byte-order mark and the \\r of \\r\\n."""
    for number, line in enumerate(file, start=1):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{source or 'stdin'}:{number} is not UTF-8 (byte 0x{line[error.start]:02x} at {error.start + 1}); "
                "convert it, or go on with --errors replace"
            ) from None


@contextmanager
def opened(source: Path | None) -> Iterator[BinaryIO]:
    """A file, or stdin."""
    if source is None:
        yield sys.stdin.buffer
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from None
    with file:
        yield file


def _created(target: Path | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if target is None else whole_file(target)


@contextmanager
def _progress(source: Path | None, target: Path | None) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of the input, where a person watches and the translations do not scroll by."""
    if not sys.stderr.isatty() or (target is None and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.fields[lines]:,} lines"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=os.path.getsize(source) if source else None, lines=0)
        lines = 0

        def advance(size: int) -> None:
            nonlocal lines
            lines += 1
            bar.update(task, advance=size, lines=lines)

        yield advance
