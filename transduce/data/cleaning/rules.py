"""What can be wrong with a sentence pair: small pure functions, and the table of all rules.

By default these drop a pair, since nothing good is learned from it:

    undecodable  lone-surrogate  replacement-character  mojibake  control-characters  line-separators
    empty  too-short  too-long  length-ratio  copy  duplicate  leak

and these only warn, since a person can tell better, or since the text is sound but uneven:

    near-duplicate  wrong-language  numbers  markup  urls  html-entities  mixed-quotes
    invisible-characters  not-nfc  byte-order-mark  crlf

`CleanConfig` switches a rule off (`off`), makes it warn (`warn`) or drop (`drop`), and sets the bounds.
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
from transduce.errors import ConfigError


class Rule(NamedTuple):
    """What a rule does by default, and what it finds."""

    drops: bool
    why: str


# In the order in which a dropped pair's reason is chosen.
RULES = {
    "undecodable": Rule(True, "bytes that are not UTF-8"),
    "lone-surrogate": Rule(True, "half a UTF-16 pair, which is not a character"),
    "replacement-character": Rule(True, "U+FFFD: a character was lost in an earlier conversion"),
    "mojibake": Rule(True, "UTF-8 that was once read as Latin-1, such as Ã¼ for ü"),
    "control-characters": Rule(True, "NUL, escape and other codes that are not text"),
    "line-separators": Rule(True, "characters at which other tools break lines, and misalign"),
    "empty": Rule(True, "a side without text"),
    "too-short": Rule(True, "a side with too few letters and digits (min_letters)"),
    "too-long": Rule(True, "a side with too many words or characters (max_words, max_characters)"),
    "length-ratio": Rule(True, "one side much longer than the other (max_ratio)"),
    "copy": Rule(True, "the target is the source, untranslated"),
    "leak": Rule(True, "a sentence of a validation or test set"),
    "duplicate": Rule(True, "the very same pair again"),
    "near-duplicate": Rule(False, "the same pair but for case, punctuation and spaces"),
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
        False, "accents apart from their letters, or otherwise not in Unicode's usual form"
    ),
    "byte-order-mark": Rule(False, "a file that starts with U+FEFF (taken off in reading)"),
    "crlf": Rule(False, "lines that end in \\r\\n (the \\r is taken off in reading)"),
}
_OF_FILES = {"mixed-quotes", "byte-order-mark", "crlf"}


def actions(config: CleanConfig) -> dict[str, bool]:
    """Which rules are on, in order, and whether each drops."""
    for setting in ("off", "warn", "drop"):
        for name in getattr(config, setting):
            if name not in RULES:
                raise ConfigError(
                    f"data.clean.{setting} names {name!r}, which is no rule; known: {', '.join(RULES)}"
                )
    for name in set(config.drop) & _OF_FILES:
        raise ConfigError(
            f"data.clean.drop names {name}, which is about files, not pairs; it can only warn"
        )
    on = {name: rule for name, rule in RULES.items() if name not in config.off}
    return {
        name: (rule.drops or name in config.drop) and name not in config.warn
        for name, rule in on.items()
    }


class Side(NamedTuple):
    """One side of a pair with what several rules ask of it."""

    text: str
    words: int
    key: bytes


UNSPACED = {"bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"}


def word_counter(language: str) -> Callable[[str], int]:
    """How to count a language's words: at white space, or as two characters each where words are not set apart."""
    if re.split("[-_]", language.lower())[0] in UNSPACED:
        return lambda text: (len(text) - text.count(" ") + 1) // 2
    return lambda text: len(text.split())


def measure(text: str, count_words: Callable[[str], int]) -> Side:
    """A side with its words and key."""
    return Side(text, count_words(text), key(text))


# Rules over one measured side.

_ENTITY = re.compile(r"&(?:[a-z]{2,8}|#\d{2,5}|#x[0-9a-f]{2,5});", re.IGNORECASE)


def is_empty(side: Side, config: CleanConfig) -> bool:
    """Nothing, white space, or invisible characters."""
    return not side.key and not INVISIBLE.sub("", side.text).strip()


def is_too_short(side: Side, config: CleanConfig) -> bool:
    """Fewer letters and digits than asked for, but not empty. (Counted in UTF-8 bytes: one ideograph is a word.)"""
    return len(side.key) < config.min_letters and not is_empty(side, config)


def is_too_long(side: Side, config: CleanConfig) -> bool:
    """More words or characters than a sentence has."""
    return side.words > config.max_words or len(side.text) > config.max_characters


def has_entities(side: Side, config: CleanConfig) -> bool:
    """HTML character references."""
    return "&" in side.text and _ENTITY.search(side.text) is not None


SIDE_RULES: dict[str, Callable[[Side, CleanConfig], bool]] = {
    "empty": is_empty,
    "too-short": is_too_short,
    "too-long": is_too_long,
    "html-entities": has_entities,
}

# Rules over both sides.

_NUMBER = re.compile(
    r"(?<![#A-Za-z_\d])(?:\d{1,3}(?: \d{3})+(?!\d)|\d(?:[.,:\u2236/'\u2019\u00a0\u202fh\u2013-]?\d)+)"
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
    """One side over max_ratio times as long as the other. Three words more say nothing: a compound may be a phrase."""
    shorter, longer = sorted((source.words, target.words))
    return longer - 3 > config.max_ratio * shorter > 0


def is_copy(source: Side, target: Side, config: CleanConfig) -> bool:
    """The same text on both sides, if it is text at all."""
    return (
        source.key == target.key
        and source.key != b""
        and source.text.strip() == target.text.strip()
    )


def numbers_differ(source: Side, target: Side, config: CleanConfig) -> bool:
    """Compared by their digits, so that 1,000.5 is 1.000,5, and part by part, so that 12/25 is 25.12.

    Single digits and round numbers are often written as words: missing on the other side, only 1987 and the like count.
    """
    if not _DIGIT.search(source.text) and not _DIGIT.search(target.text):
        return False
    if _NUMBER.findall(source.text) == _NUMBER.findall(target.text):
        return False
    texts = [
        _FOREIGN_DIGIT.sub(lambda sign: str(unicodedata.digit(sign[0])), side.text)
        for side in (source, target)
    ]
    numbers = [_NUMBER.findall(text) for text in texts]
    if _parts(texts[0]) == _parts(texts[1]) or _parts(" ".join(numbers[0])) == _parts(
        " ".join(numbers[1])
    ):
        return False
    source_digits, target_digits = (
        Counter(re.sub(r"\D", "", number) for number in side) for side in numbers
    )
    only_source, only_target = source_digits - target_digits, target_digits - source_digits
    if only_source and only_target:
        return True
    return any(len(number.replace("0", "")) > 2 for number in only_source | only_target)


def _parts(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", text))


def markup_differs(source: Side, target: Side, config: CleanConfig) -> bool:
    """Tags by name (their attributes may be translated) and placeholders in full, in any order."""
    return _markup(source.text) != _markup(target.text)


def _markup(text: str) -> list[str]:
    if not _MARKUP_SIGN.search(text):
        return []
    return sorted(["".join(tag).lower() for tag in _TAG.findall(text)] + _PLACEHOLDER.findall(text))


def urls_differ(source: Side, target: Side, config: CleanConfig) -> bool:
    """Compared by site: a page's translation has another address."""
    return ("://" in source.text or "://" in target.text) and _sites(source.text) != _sites(
        target.text
    )


def _sites(text: str) -> list[str]:
    return sorted(site.lower() for site in _URL.findall(text))


PAIR_RULES: dict[str, Callable[[Side, Side, CleanConfig], bool]] = {
    "length-ratio": ratio_is_odd,
    "copy": is_copy,
    "numbers": numbers_differ,
    "markup": markup_differs,
    "urls": urls_differ,
}

# Quotation marks are no fault of one sentence: the doctor counts styles, and reports the rarer ones of a side.

_QUOTES = {"“": "“ ”", "”": "“ ”", "„": "„ “", "«": "« »", "»": "« »"}


def quotation_style(text: str) -> str | None:
    """The kind of double quotation marks in a text, the first one if there are several."""
    if not text.isascii():
        found = [
            (place, style) for mark, style in _QUOTES.items() if (place := text.find(mark)) >= 0
        ]
        if found:
            return min(found)[1]
    return '" "' if '"' in text else None
