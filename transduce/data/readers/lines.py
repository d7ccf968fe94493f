"""A text file's lines: split on the byte \\n alone, a block at a time, decoded once.

`str.splitlines` and text-mode files also split at U+2028, form feeds and more, which silently misaligns parallel files.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from transduce.data.readers import encodings
from transduce.data.readers.compression import blocks
from transduce.errors import DataError

_LONGEST = 1 << 26
_HEAD = 1 << 12


class Remark(NamedTuple):
    """Something about a file as a whole, put right or passed on by reading: the doctor tells of it."""

    rule: str
    file: str
    line: int  # where it was met first
    times: int
    advice: str = ""


class Lines(NamedTuple):
    """A block of a file's lines without their ends."""

    first: int  # the number of the first one, from 1
    texts: list[str]
    remarks: tuple[Remark, ...]


def read_lines(path: Path, language: str = "", strict: bool = True) -> Iterator[Lines]:
    """The lines of a UTF-8 file. A byte-order mark and the \\r of \\r\\n are taken off.

    Bytes that are not UTF-8 are an error; if not strict, they become U+DC80..U+DCFF (`surrogateescape`), from which
    the doctor reports them.
    """
    first = 1
    for block in whole_lines(path):
        remarks = []
        if first == 1:
            if wide := encodings.wide_encoding(block[:_HEAD]):
                raise DataError(encodings.conversion(path, 1, wide))
            if block.startswith(codecs.BOM_UTF8):
                block = block.removeprefix(codecs.BOM_UTF8)
                remarks.append(Remark("byte-order-mark", str(path), 1, 1))
        if line_ends := block.count(b"\r\n"):
            line = first + block.count(b"\n", 0, block.index(b"\r\n"))
            remarks.append(Remark("crlf", str(path), line, line_ends))
            block = block.replace(b"\r\n", b"\n")
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            line = block.count(b"\n", 0, error.start)
            bad_line = block.split(b"\n", line + 1)[line]
            advice = encodings.diagnosis(path, first + line, bad_line, block, language)
            if strict:
                raise DataError(advice) from None
            remarks.append(Remark("undecodable", str(path), first + line, 0, advice))
            text = block.decode(errors="surrogateescape")
        texts = text.removesuffix("\n").split("\n")
        yield Lines(first, texts, tuple(remarks))
        first += len(texts)


def whole_lines(path: Path) -> Iterator[bytes]:
    """The file's bytes in blocks that end where a line ends."""
    rest: list[bytes] = []
    for block in blocks(path):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, block[:cut]])
            rest = [block[cut:]]
        else:
            rest.append(block)
            if sum(map(len, rest)) > _LONGEST:
                raise DataError(
                    f"{path} has a line of more than {_LONGEST >> 20} MiB; is it a file of text?"
                )
    if last := b"".join(rest):
        yield last
