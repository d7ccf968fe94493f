"""Rules over the characters of a text: broken encodings, and what no reader can see.

Those of the first table find only what `str.isprintable` denies, those of the second only what `str.isascii` denies:
two quick questions spare most sentences all of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_ESCAPED_SURROGATE = re.compile("\udced[\udca0-\udcbf][\udc80-\udcbf]")
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_LINE_SEPARATOR = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Joiners are spelling in Persian, in Indic scripts and in emoji; after them stands a letter that is not Latin.
INVISIBLE = re.compile(
    "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]|[\u200c\u200d](?=[\x00-\u024f]|$)"
)


def has_undecodable(text: str) -> bool:
    """Bytes that reading passed on as U+DC80..U+DCFF, other than those of a surrogate written as UTF-8."""
    return _ESCAPED_BYTE.search(_ESCAPED_SURROGATE.sub("", text)) is not None


def has_lone_surrogate(text: str) -> bool:
    """From a JSON escape such as \\ud800, or from the three bytes that some programs write for it."""
    return _SURROGATE.search(text) is not None or _ESCAPED_SURROGATE.search(text) is not None


def _finder(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.search(text) is not None


UNPRINTABLE_RULES: dict[str, Callable[[str], bool]] = {
    "undecodable": has_undecodable,
    "lone-surrogate": has_lone_surrogate,
    "control-characters": _finder(_CONTROL),
    "line-separators": _finder(_LINE_SEPARATOR),
    "invisible-characters": _finder(INVISIBLE),
}

# The bytes 80..BF as Latin-1 and as Windows-1252 show them: what follows the first byte of a UTF-8 character.
_TAIL = (
    "[\x80-\xbf"
    + "".join(bytes([byte]).decode("cp1252", "ignore") for byte in range(0x80, 0xA0))
    + "]"
)
# Ã and Â begin the misread Latin letters and punctuation, â€ the misread quotation marks and dashes. Other letters are
# common in front of a quotation mark (`é”`), so that it takes two misread characters in a row to be sure.
_MOJIBAKE = re.compile(f"[ÃÂ]{_TAIL}|â[€\x80]{_TAIL}|(?:[Ä-ßà-ï]{_TAIL}{{1,2}}){{2}}")
_TAIL_SIGN = re.compile(_TAIL)


def has_mojibake(text: str) -> bool:
    """UTF-8 that was read as Latin-1 or Windows-1252 and written again."""
    return _TAIL_SIGN.search(text) is not None and _MOJIBAKE.search(text) is not None


NON_ASCII_RULES: dict[str, Callable[[str], bool]] = {
    "replacement-character": lambda text: "\ufffd" in text,
    "mojibake": has_mojibake,
    "not-nfc": lambda text: not unicodedata.is_normalized("NFC", text),
}
