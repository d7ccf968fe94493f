"""Rules about the characters of a text: broken encodings and invisible characters.

`UNPRINTABLE_RULES` apply only to texts that are not `str.isprintable`, and `NON_ASCII_RULES` only
to texts that are not `str.isascii`. These two tests are fast, and most sentences need no more.
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
# Zero-width joiners are part of the spelling in Persian, Indic scripts and emoji: they are an error
# only at the end or in front of a Latin letter.
INVISIBLE = re.compile(
    "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
    "|[\u200c\u200d](?=[\x00-\u024f]|$)"
)


def has_undecodable(text: str) -> bool:
    """Return whether a text has bytes that are not UTF-8, which were read as U+DC80..U+DCFF.

    The bytes of a surrogate that was written as UTF-8 do not count.
    """
    return _ESCAPED_BYTE.search(_ESCAPED_SURROGATE.sub("", text)) is not None


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text has half a UTF-16 pair.

    It comes from a JSON escape such as \\ud800, or from the three bytes that some programs
    write for it.
    """
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

# The bytes 80..BF, which continue a UTF-8 character, as Latin-1 and as Windows-1252 show them.
_WINDOWS_1252 = "".join(bytes([byte]).decode("cp1252", "ignore") for byte in range(0x80, 0xA0))
_TAIL = f"[\x80-\xbf{_WINDOWS_1252}]"
# Misread Latin letters and punctuation begin with Ã or Â, misread quotation marks and dashes with
# â€. Other letters are common in front of a quotation mark (`é”`), so two misread characters in a
# row are required.
_MOJIBAKE = re.compile(f"[ÃÂ]{_TAIL}|â[€\x80]{_TAIL}|(?:[Ä-ßà-ï]{_TAIL}{{1,2}}){{2}}")
_TAIL_SIGN = re.compile(_TAIL)


def has_mojibake(text: str) -> bool:
    """Return whether a text has UTF-8 that was once read as Latin-1 or Windows-1252."""
    return _TAIL_SIGN.search(text) is not None and _MOJIBAKE.search(text) is not None


NON_ASCII_RULES: dict[str, Callable[[str], bool]] = {
    "replacement-character": lambda text: "\ufffd" in text,
    "mojibake": has_mojibake,
    "not-nfc": lambda text: not unicodedata.is_normalized("NFC", text),
}
