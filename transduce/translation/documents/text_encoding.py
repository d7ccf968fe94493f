"""The encoding of a text file: its bytes as text, and a changed text as bytes of the same kind."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from transduce.data.readers.lines import conversion, wide_encoding
from transduce.errors import InputError

_HEAD = 1 << 12  # bytes by which UTF-16 is recognized that has no mark
# UTF-32 comes first: its little-endian mark begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# Encodings that a file can name inside it, because they contain ASCII. Python has others, such as
# idna and unicode_escape, in which no file is written.
_NAMEABLE = re.compile(
    r"utf-8|ascii|(?:iso8859|koi8|mac|tis)-\w+|cp(?:437|8[56]\d|874|932|949|950|125\d)|gb\w+|hz|big5\w*"
    r"|(?:euc|shift|iso2022)_\w+|johab"
)


@dataclass(frozen=True)
class Encoding:
    """The encoding of a file, and the byte-order mark that it starts with."""

    name: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str, errors: str = "replace") -> bytes:
        """Return a text in this encoding."""
        return self.mark + text.encode(self.name, errors)

    def from_utf8(self, data: bytes) -> bytes:
        """Return a part of a text, which is in UTF-8, in this encoding."""
        return data if self.name == "utf-8" else data.decode().encode(self.name)


def nameable(name: str) -> str | None:
    """Return Python's name of an encoding that a file names, or None if it cannot be true."""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return None
    return found if _NAMEABLE.fullmatch(found) else None


def decode(data: bytes, name: str, encoding: str = "utf-8") -> tuple[str, Encoding]:
    """Return the text of a file; a byte-order mark overrules the encoding."""
    found = _find(data, name, encoding)
    body = data[len(found.mark) :]
    try:
        return body.decode(found.name), found
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not {found.name.upper()} (byte 0x{body[error.start]:02x} at "
            f"{len(found.mark) + error.start + 1}); convert it first"
        ) from None


def utf8_blocks(
    blocks: Iterable[bytes], name: str, errors: str = "strict"
) -> tuple[Encoding, Iterator[bytes]]:
    """Return the encoding of a text that arrives in blocks, and its blocks in UTF-8.

    These have no byte-order mark, and what should be UTF-8 is not checked.
    """
    rest = iter(blocks)
    first = next(rest, b"")
    # A pipe may give a mark in parts.
    while any(mark.startswith(first) for mark in _MARKS) and (more := next(rest, b"")):
        first += more
    encoding = _find(first, name, "utf-8")
    body = chain([first[len(encoding.mark) :]], rest)
    return encoding, body if encoding.name == "utf-8" else _recoded(body, encoding, name, errors)


def _find(data: bytes, name: str, default: str) -> Encoding:
    """Return the encoding that the mark of a text shows, or else the default."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return Encoding(encoding, mark)
    wide = wide_encoding(data[:_HEAD]) if default == "utf-8" else None
    if wide:
        raise InputError(conversion(Path(name), 1, wide))
    return Encoding(default)


def _recoded(
    blocks: Iterable[bytes], encoding: Encoding, name: str, errors: str
) -> Iterator[bytes]:
    """Yield blocks in UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding.name)(errors)
    line = 1
    for block in chain(blocks, [b""]):
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].decode(encoding.name, "replace").count("\n")
            raise InputError(
                f"{name}:{line} is not {encoding.name.upper()}; convert it, or go on with "
                "--errors replace"
            ) from None
        line += text.count("\n")
        yield text.encode()
