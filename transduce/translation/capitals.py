"""Sentences in capitals, which most models have hardly ever seen, and copy instead of translating.

Such a sentence is given to the model in lower case, and its translation gets the capitals back.
Whether a model knows capitals is seen from its tokenizer, which has learned from the same text: it
splits what it does not know into many pieces.
"""

from __future__ import annotations

import re

from transduce.data.tokenizer import Tokenizer
from transduce.translation.tag_tree import words

# Lower case must save this many pieces, and this share of them. "WHO" and "README" save one.
FEWER = 2
SHARE = 1 / 4
_CODE = re.compile(r"(?<!\S)\S*?[\d_]\S*")  # what has digits or underscores, up to the next space
DOTTED_I = {"az", "tr"}  # languages in which the capital of "i" has a dot


class Capitals:
    """Turns sentences in capitals into lower case for a model."""

    def __init__(self, tokenizer: Tokenizer, language: str) -> None:
        self._tokenizer = tokenizer
        self._language = language

    def read(self, text: str) -> str:
        """Return a text in capitals that the model does not know in lower case, any other as ""."""
        if not text.isupper():
            return ""
        lower = self._lower(text)
        before, after = self._count([text, lower])
        is_shorter = before - after >= max(FEWER, SHARE * before)
        return lower if is_shorter else ""

    def _lower(self, text: str) -> str:
        """Return a text in capitals as a sentence in lower case.

        Abbreviations keep their capitals: they are words that take fewer pieces in them, such as
        "NATO". So does what has digits, which includes stand-ins, and names in code.
        """
        ranges = words(text)
        found = [text[start:end] for start, end in ranges]
        lower = [to_lower_case(word, self._language) for word in found]
        codes = [match.span() for match in _CODE.finditer(text)]
        chosen = []
        for (start, _), word, low, count, low_count in zip(
            ranges, found, lower, self._count(found), self._count(lower), strict=True
        ):
            in_code = any(first <= start < last for first, last in codes)
            chosen.append(word if in_code or count < low_count else low)

        # The first word begins with a capital.
        first = next((index for index, word in enumerate(found) if word.isalpha()), None)
        if first is not None:
            chosen[first] = found[first][0] + chosen[first][1:]

        parts = []
        done = 0  # the end of the last word
        for (start, end), word in zip(ranges, chosen, strict=True):
            parts += [text[done:start], word]
            done = end
        return "".join([*parts, text[done:]])

    def _count(self, texts: list[str]) -> list[int]:
        """Return the number of pieces of each text."""
        return [len(ids) - 1 for ids in self._tokenizer.encode_batch(texts)]


def to_lower_case(text: str, language: str) -> str:
    """Return a text in the lower case of its language."""
    if language in DOTTED_I:
        text = text.replace("I", "\u0131").replace("\u0130", "i")
    return text.lower()


def to_capitals(text: str, language: str) -> str:
    """Return a text in the capitals of its language."""
    if language in DOTTED_I:
        text = text.replace("i", "\u0130")
    return text.upper()
