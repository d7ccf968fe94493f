"""The encoding of a text file: its bytes as text, and a changed text as bytes of the same kind."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from transduce.errors import InputError

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
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


def nameable(name: str) -> str | None:
    """Return Python's name of an encoding that a file names, or None if it cannot be true."""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return None
    return found if _NAMEABLE.fullmatch(found) else None


def decode(data: bytes, name: str, encoding: str = "utf-8") -> tuple[str, Encoding]:
    """Return the text of a file; a byte-order mark overrules the encoding."""
    found = Encoding(encoding)
    for mark, marked_encoding in _MARKS.items():
        if data.startswith(mark):
            found = Encoding(marked_encoding, mark)
    body = data[len(found.mark) :]
    try:
        return body.decode(found.name), found
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not {found.name.upper()} (byte 0x{body[error.start]:02x} at "
            f"{len(found.mark) + error.start + 1}); convert it first"
        ) from None
