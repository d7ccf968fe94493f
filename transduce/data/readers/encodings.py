"""Guess the encoding of a file that is not UTF-8, and say what to do about it."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

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
    code = re.split("[-_]", language.lower())[0]
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
