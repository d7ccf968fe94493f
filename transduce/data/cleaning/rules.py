"""The rules for cleaning sentence pairs: small pure functions, and the table of all rules.

These rules drop a pair by default, because the model would learn something wrong from it:

    undecodable  lone-surrogate  replacement-character  mojibake  control-characters
    line-separators  empty  too-short  too-long  length-ratio  copy  duplicate  leak

These rules only warn, because the text may be correct:

    near-duplicate  wrong-language  numbers  markup  urls  html-entities  mixed-quotes
    invisible-characters  not-nfc  byte-order-mark  crlf

`CleanConfig` turns rules off (`off`), makes them warn (`warn`) or drop (`drop`), and sets bounds.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from transduce.config import CleanConfig
from transduce.data.cleaning.characters import INVISIBLE
from transduce.data.cleaning.dedup import key
from transduce.data.languages import base_language
from transduce.errors import ConfigError


class Rule(NamedTuple):
    """Whether a rule drops pairs by default, and what it finds."""

    drops: bool
    why: str


# The first rule in this order that drops a pair is the reason that is reported.
RULES = {
    "undecodable": Rule(True, "bytes that are not UTF-8"),
    "lone-surrogate": Rule(True, "half a UTF-16 pair, which is not a character"),
    "replacement-character": Rule(True, "U+FFFD: a character was lost in an earlier conversion"),
    "mojibake": Rule(True, "UTF-8 that was once read as Latin-1, such as Ã¼ for ü"),
    "control-characters": Rule(True, "NUL, escape and other codes that are not text"),
    "line-separators": Rule(
        True, "characters where other tools break lines, which misaligns files"
    ),
    "empty": Rule(True, "a side without text"),
    "too-short": Rule(True, "a side with too few letters and digits (min_letters)"),
    "too-long": Rule(True, "a side with too many words or characters (max_words, max_characters)"),
    "length-ratio": Rule(True, "one side much longer than the other (max_ratio)"),
    "copy": Rule(True, "the target is the source, untranslated"),
    "leak": Rule(True, "a sentence of a validation or test set"),
    "duplicate": Rule(True, "exactly the same pair again"),
    "near-duplicate": Rule(False, "the same pair except for case, punctuation and spaces"),
    "wrong-language": Rule(
        False, "a side in another language (identified on language_sample pairs)"
    ),
    "numbers": Rule(False, "numbers of two or more digits that differ between the sides"),
    "markup": Rule(False, "tags or placeholders that differ between the sides"),
    "urls": Rule(False, "web addresses on one side only, or of other sites"),
    "html-entities": Rule(False, "characters still escaped, such as &amp;"),
    "mixed-quotes": Rule(False, "quotation marks in another style than most of that side"),
    "invisible-characters": Rule(False, "zero-width spaces, soft hyphens and the like"),
    "not-nfc": Rule(
        False, "characters that are not in Unicode's normal form NFC, such as separate accents"
    ),
    "byte-order-mark": Rule(False, "a file that starts with U+FEFF (removed when reading)"),
    "crlf": Rule(False, "lines that end in \\r\\n (the \\r is removed when reading)"),
}
_FILE_RULES = {"mixed-quotes", "byte-order-mark", "crlf"}


def actions(config: CleanConfig) -> dict[str, bool]:
    """Return the enabled rules, in order, and whether each drops pairs."""
    for setting in ("off", "warn", "drop"):
        for name in getattr(config, setting):
            if name not in RULES:
                raise ConfigError(
                    f"data.clean.{setting} names {name!r}, which is not a rule; "
                    f"known: {', '.join(RULES)}"
                )
    for name in set(config.drop) & _FILE_RULES:
        raise ConfigError(
            f"data.clean.drop names {name}, which is about files, not pairs; it can only warn"
        )
    enabled = {}
    for name, rule in RULES.items():
        if name not in config.off:
            enabled[name] = (rule.drops or name in config.drop) and name not in config.warn
    return enabled


class Side(NamedTuple):
    """One side of a pair, with what several rules need."""

    text: str
    words: int
    key: bytes  # its letters and digits (see `dedup.key`)


# Languages that do not separate words by spaces.
UNSPACED = {"bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"}


def word_counter(language: str) -> Callable[[str], int]:
    """Return a function that counts words: at white space, or as two characters each."""
    if base_language(language) in UNSPACED:
        return lambda text: (len(text) - text.count(" ") + 1) // 2
    return lambda text: len(text.split())


def measure(text: str, count_words: Callable[[str], int]) -> Side:
    """Return a side with its number of words and its key."""
    return Side(text, count_words(text), key(text))


# Rules about one side.

_ENTITY = re.compile(r"&(?:[a-z]{2,8}|#\d{2,5}|#x[0-9a-f]{2,5});", re.IGNORECASE)


def is_empty(side: Side, config: CleanConfig) -> bool:
    """Return whether a side has only white space and invisible characters."""
    return not side.key and not INVISIBLE.sub("", side.text).strip()


def is_too_short(side: Side, config: CleanConfig) -> bool:
    """Return whether a side has too few letters and digits, but is not empty.

    They are counted in UTF-8 bytes, since one ideograph may be a word.
    """
    return len(side.key) < config.min_letters and not is_empty(side, config)


def is_too_long(side: Side, config: CleanConfig) -> bool:
    """Return whether a side has too many words or characters."""
    return side.words > config.max_words or len(side.text) > config.max_characters


def has_entities(side: Side, config: CleanConfig) -> bool:
    """Return whether a side has HTML character references."""
    return "&" in side.text and _ENTITY.search(side.text) is not None


SIDE_RULES: dict[str, Callable[[Side, CleanConfig], bool]] = {
    "empty": is_empty,
    "too-short": is_too_short,
    "too-long": is_too_long,
    "html-entities": has_entities,
}

# Rules about both sides.

_NUMBER = re.compile(
    r"(?<![#A-Za-z_\d])"
    r"(?:\d{1,3}(?: \d{3})+(?!\d)|\d(?:[.,:\u2236/'\u2019\u00a0\u202fh\u2013-]?\d)+)"
)
_DIGIT = re.compile(r"\d")
_FOREIGN_DIGIT = re.compile(r"[^\D0-9]")
_MARKUP_SIGN = re.compile("[<%{$]")
_TAG = re.compile(r"<(/?[A-Za-z][\w:-]*+)[^<>]*?(/?)>")
_PLACEHOLDER = re.compile(
    r"(?<![\d%])%(?:\d+\$|\([\w.]+\))?[sdifuxXc@]\b|%\d\b|\$?\{\{?[\w.:-]*\}?\}|\$\([\w.]+\)"
)
_URL = re.compile(r"\b(?:https?|ftp)://[^\s/]*?([\w-]+\.[\w-]+)(?=[/:?#\s,;)\"'<>]|\.?$|\.\W)")


def ratio_is_odd(source: Side, target: Side, config: CleanConfig) -> bool:
    """Return whether one side is more than max_ratio times as long as the other.

    Three words more are always allowed: a compound may be a phrase in the other language.
    """
    shorter, longer = sorted((source.words, target.words))
    return longer - 3 > config.max_ratio * shorter > 0


def is_copy(source: Side, target: Side, config: CleanConfig) -> bool:
    """Return whether both sides have the same text, with at least one letter or digit."""
    return (
        source.key == target.key
        and source.key != b""
        and source.text.strip() == target.text.strip()
    )


def numbers_differ(source: Side, target: Side, config: CleanConfig) -> bool:
    """Return whether the numbers of the two sides differ.

    Numbers are compared by their digits, so that 1,000.5 equals 1.000,5, and part by part, so that
    12/25 equals 25.12. Single digits and round numbers are often written as words: a number that is
    on one side only counts if it has three digits other than 0.
    """
    if not _DIGIT.search(source.text) and not _DIGIT.search(target.text):
        return False
    if _NUMBER.findall(source.text) == _NUMBER.findall(target.text):
        return False

    # Compare the digits of the whole texts, and then those of the numbers, in any order.
    source_text = _with_ascii_digits(source.text)
    target_text = _with_ascii_digits(target.text)
    source_numbers = _NUMBER.findall(source_text)
    target_numbers = _NUMBER.findall(target_text)
    if _digit_groups(source_text) == _digit_groups(target_text):
        return False
    if _digit_groups(" ".join(source_numbers)) == _digit_groups(" ".join(target_numbers)):
        return False

    # Compare number by number, without their separators.
    source_digits = Counter(map(_digits, source_numbers))
    target_digits = Counter(map(_digits, target_numbers))
    only_source = source_digits - target_digits
    only_target = target_digits - source_digits
    if only_source and only_target:
        return True
    return any(len(number.replace("0", "")) > 2 for number in only_source | only_target)


def _with_ascii_digits(text: str) -> str:
    return _FOREIGN_DIGIT.sub(lambda match: str(unicodedata.digit(match[0])), text)


def _digit_groups(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", text))


def _digits(number: str) -> str:
    return re.sub(r"\D", "", number)


def markup_differs(source: Side, target: Side, config: CleanConfig) -> bool:
    """Return whether tags or placeholders of the two sides differ, in any order.

    Tags are compared by name, since their attributes may be translated.
    """
    return _markup(source.text) != _markup(target.text)


def _markup(text: str) -> list[str]:
    if not _MARKUP_SIGN.search(text):
        return []
    tags = ["".join(tag).lower() for tag in _TAG.findall(text)]
    return sorted(tags + _PLACEHOLDER.findall(text))


def urls_differ(source: Side, target: Side, config: CleanConfig) -> bool:
    """Return whether the sides link to different sites.

    Only the site is compared, since a translated page has another address.
    """
    if "://" not in source.text and "://" not in target.text:
        return False
    return _sites(source.text) != _sites(target.text)


def _sites(text: str) -> list[str]:
    return sorted(site.lower() for site in _URL.findall(text))


PAIR_RULES: dict[str, Callable[[Side, Side, CleanConfig], bool]] = {
    "length-ratio": ratio_is_odd,
    "copy": is_copy,
    "numbers": numbers_differ,
    "markup": markup_differs,
    "urls": urls_differ,
}

# A style of quotation marks is no error in itself: the cleaner reports all but the most frequent.

_QUOTES = {"“": "“ ”", "”": "“ ”", "„": "„ “", "«": "« »", "»": "« »"}


def quotation_style(text: str) -> str | None:
    """Return the style of the first double quotation mark in a text, or None."""
    if not text.isascii():
        styles = [(text.find(mark), style) for mark, style in _QUOTES.items() if mark in text]
        if styles:
            return min(styles)[1]
    return '" "' if '"' in text else None
