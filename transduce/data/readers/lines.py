"""Read the lines of a text file, a block at a time, split at the byte \\n only.

`str.splitlines` also splits at U+2028, form feeds and other characters, which would silently
misalign parallel files.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from transduce.data.readers import encodings
from transduce.data.readers.compression import blocks
from transduce.errors import DataError

_LONGEST_LINE = 1 << 26  # bytes
_HEAD = 1 << 12  # bytes by which UTF-16 and UTF-32 are recognized


class Remark(NamedTuple):
    """An observation about a file that was read, for the doctor to report."""

    rule: str
    file: str
    line: int  # of the first occurrence
    times: int  # occurrences in the block
    advice: str = ""


class Lines(NamedTuple):
    """Consecutive lines of a file, without their line ends."""

    first: int  # the number of the first line, counted from 1
    texts: list[str]
    remarks: tuple[Remark, ...]


def read_lines(path: Path, language: str = "", strict: bool = True) -> Iterator[Lines]:
    """Read the lines of a UTF-8 file, without a byte-order mark and the \\r of \\r\\n.

    Args:
        path: The file, which may be compressed.
        language: The language code, which helps to guess the encoding of a file that is not UTF-8.
        strict: Whether bytes that are not UTF-8 are an error. If not, they become U+DC80..U+DCFF
            (`surrogateescape`), which the doctor reports.
    """
    first = 1
    for block in whole_lines(path):
        remarks = []

        # The start of a file shows whether it is UTF-16 or UTF-32, and may be a byte-order mark.
        if first == 1:
            wide_encoding = encodings.wide_encoding(block[:_HEAD])
            if wide_encoding:
                raise DataError(encodings.conversion(path, 1, wide_encoding))
            if block.startswith(codecs.BOM_UTF8):
                block = block.removeprefix(codecs.BOM_UTF8)
                remarks.append(Remark("byte-order-mark", str(path), 1, 1))

        line_ends = block.count(b"\r\n")
        if line_ends:
            line = first + block.count(b"\n", 0, block.index(b"\r\n"))
            remarks.append(Remark("crlf", str(path), line, line_ends))
            block = block.replace(b"\r\n", b"\n")

        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            lines_before = block.count(b"\n", 0, error.start)
            bad_line = block.split(b"\n", lines_before + 1)[lines_before]
            number = first + lines_before
            advice = encodings.diagnosis(path, number, bad_line, block, language)
            if strict:
                raise DataError(advice) from None
            remarks.append(Remark("undecodable", str(path), number, 0, advice))
            text = block.decode(errors="surrogateescape")

        texts = text.removesuffix("\n").split("\n")
        yield Lines(first, texts, tuple(remarks))
        first += len(texts)


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks that end where a line ends."""
    unfinished: list[bytes] = []  # the start of a line whose end is in a later block
    for block in blocks(path):
        end_of_last_line = block.rfind(b"\n") + 1
        if end_of_last_line:
            yield b"".join([*unfinished, block[:end_of_last_line]])
            unfinished = [block[end_of_last_line:]]
        else:
            unfinished.append(block)
            if sum(map(len, unfinished)) > _LONGEST_LINE:
                raise DataError(
                    f"{path} has a line of more than {_LONGEST_LINE >> 20} MiB; "
                    "expected a text file with one sentence a line"
                )
    last_line = b"".join(unfinished)
    if last_line:
        yield last_line
