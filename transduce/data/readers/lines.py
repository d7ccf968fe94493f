"""Read the lines of a text file, a block at a time, split at the byte \\n only.

`str.splitlines` also splits at U+2028, form feeds and other characters, which would silently
misalign parallel files.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from transduce.data.languages import base_language
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
            wide = wide_encoding(block[:_HEAD])
            if wide:
                raise DataError(conversion(path, 1, wide))
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
            advice = diagnosis(path, number, bad_line, block, language)
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


# UTF-32 comes first: its little-endian mark begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# The encodings that older files in these languages usually have.
_LEGACY = {
    "CP1250": "bs cs hr hu pl ro sk sl sq",
    "CP1251": "be bg kk ky mk mn ru sr tg tt uk",
    "CP1253": "el",
    "CP1254": "az tr",
    "CP1255": "he",
    "CP1256": "ar fa ps ur",
    "CP1257": "et lt lv",
    "CP1258": "vi",
    "CP874": "th",
    "CP932": "ja",
    "EUC-KR": "ko",
    "GB18030": "zh",
}
_DOUBLE_BYTE = ("CP932", "EUC-KR", "GB18030")
_DROP = "drop such lines with: transduce doctor ... --out FOLDER"
_UTF8_CHARACTER = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def wide_encoding(head: bytes) -> str | None:
    """Return UTF-16 or UTF-32 if a file starts with its mark, or every second byte is zero."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    even = head[::2].count(0)
    odd = head[1::2].count(0)
    zeros = max(even, odd)
    others = min(even, odd)
    # In CJK text, only the line ends have zeros.
    enough = max(3, len(head) / 10) if _is_utf8(head) else 1
    if zeros < enough or zeros < 8 * others:
        return None
    return "UTF-16LE" if odd > even else "UTF-16BE"


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def diagnosis(path: Path, line: int, bad_line: bytes, around: bytes, language: str = "") -> str:
    """Return a message about bytes that are not UTF-8: their likely encoding, and what to do.

    Args:
        path: The file.
        line: The number of the line with those bytes.
        bad_line: The bytes of that line.
        around: The bytes of the lines around it.
        language: The code of the language that the text should be in.
    """
    code = base_language(language)
    encoding = next((name for name, codes in _LEGACY.items() if code in codes.split()), None)
    if _SURROGATE.search(bad_line):
        return (
            f"{path}:{line} has half a UTF-16 pair (a lone surrogate), which is not text; {_DROP}"
        )
    if encoding is None:
        encoding = "CP1252" if re.search(rb"[\x80-\x9f]", bad_line) else "ISO-8859-1"
    if _is_mixed(around, encoding):
        return f"{path}:{line} looks like {encoding} in a file that is UTF-8 elsewhere; {_DROP}"
    return conversion(path, line, encoding)


def conversion(path: Path, line: int, encoding: str) -> str:
    """Return a message about a file that is completely in another encoding."""
    found = f"{path}:{line} is not UTF-8 but looks like {encoding}"
    return f"{found}; convert the (uncompressed) file with: iconv -f {encoding} -t UTF-8"


def _is_mixed(data: bytes, encoding: str) -> bool:
    """Return whether many characters are UTF-8 and others are not, so that no conversion helps."""
    if encoding in _DOUBLE_BYTE:
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            return True
        return False
    # A few pairs of 8-bit letters look like UTF-8 by chance.
    rest, characters = _UTF8_CHARACTER.subn(b"", data)
    return characters * 10 > len(re.findall(rb"[\x80-\xff]", rest))
