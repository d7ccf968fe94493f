"""Sentences in capitals, which most models have hardly ever seen, and copy instead of translating.

Such a sentence is given to the model in lower case, and its translation gets the capitals back.
Whether a model knows capitals is seen from its tokenizer, which has learned from the same text: it
splits what it does not know into many pieces.
"""

from __future__ import annotations

import re

from transduce.data.languages import base_language
from transduce.data.tokenizer import SPACE_MARK, Tokenizer
from transduce.translation.tag_tree import words

# A word that a model knows has at least so many letters to a piece. Names such as Özil have fewer.
LETTERS = 2.6
MOST = 0.8  # the share of capitals among the letters of a sentence in capitals
# Lower case must save this many pieces, and this share of them. "WHO" and "README" save one.
FEWER = 2
SHARE = 1 / 4
_SMALL = re.compile("[a-z]{3}")
# Names in code and of files, which stay as they are; also what has digits, such as stand-ins.
_CODE = re.compile(r"\b\w*?[\d_]\w*|\b\w+(?:\.\w{2,})+")
DOTTED_I = {"az", "aze", "tr", "tur"}  # languages in which the capital of "i" has a dot
MICRO = "\u00b5"  # of units; its capital is a Greek letter


class Capitals:
    """Turns sentences in capitals into lower case for a model."""

    def __init__(self, tokenizer: Tokenizer, language: str) -> None:
        self._tokenizer = tokenizer
        self._language = language

    def lower(self, text: str) -> str | None:
        """Return a text in lower case if it is in capitals that the model does not know."""
        if not is_in_capitals(text):
            return None
        lower = self._with_fewest_pieces(text)
        before, after = self._count([text, lower])
        is_shorter = before - after >= max(FEWER, SHARE * before)
        return lower if is_shorter else None

    def _with_fewest_pieces(self, text: str) -> str:
        """Return a text with each word in the case in which it takes the fewest pieces.

        These are capitals for "NATO", one capital for "Germany", and lower case where there is no
        difference. The first word of a sentence has at least one.
        """
        codes = [match.span() for match in _CODE.finditer(text)]
        parts = []
        done = 0  # the end of the last word
        for start, end in words(text):
            word = text[start:end]
            forms = [with_one_capital(word, self._language), word]
            if any(map(str.isalnum, text[:start])):  # it is not the first word
                forms.insert(0, to_lower_case(word, self._language))
            if any(low <= start < high for low, high in codes):
                forms = [word]
            counts = self._count(forms)
            parts += [text[done:start], forms[counts.index(min(counts))]]
            done = end
        return "".join([*parts, text[done:]])

    def _count(self, texts: list[str]) -> list[int]:
        """Return the number of pieces of each text."""
        return [len(ids) - 1 for ids in self._tokenizer.encode_batch(texts)]


class RareInitials:
    """Reads words in lower case whose initial is a capital that the model has never seen.

    Such a capital is spelt in bytes. In German it is often the Ö, of which a model has seen a
    hundred small ones: it knows "österreich" and not "Österreich".
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def lower(self, text: str, unknown: str, kept: re.Pattern[str]) -> str:
        """Return the text with small initials, as long as before; what matches `kept` stays.

        Of the unknown characters these are capitals. Words that lower case makes no better known,
        such as names and abbreviations, stay too.
        """
        if not any(map(str.isupper, unknown)):
            return text
        stays = [match.span() for match in kept.finditer(text)]
        letters = list(text)
        for start, end in words(text):
            small = text[start].lower()
            word = small + text[start + 1 : end]
            if text[start] not in unknown or len(small) > 1 or not set(word).isdisjoint(unknown):
                continue
            is_kept = any(low < end and start < high for low, high in stays)
            if not is_kept and self._is_known(word):
                letters[start] = small
        return "".join(letters)

    def _is_known(self, word: str) -> bool:
        pieces = self._tokenizer.pieces(self._tokenizer.encode(word)[:-1])
        pieces = [piece for piece in pieces if piece != SPACE_MARK]
        return len(pieces) == 1 or len(word) >= LETTERS * len(pieces)


def is_in_capitals(text: str) -> bool:
    """Return whether a text is in capitals, except for short words such as km or x.

    Scripts without case have no capitals.
    """
    if _SMALL.search(text):  # nearly every text
        return False
    letters = [character for character in text if character.isalpha()]
    if sum(map(str.isupper, letters)) <= MOST * len(letters):
        return False
    found = [text[start:end] for start, end in words(text)]
    # There is hardly a capital of the German sharp s.
    long_words = [word.replace("\u00df", "") for word in found if len(word) > 2 and word.isalpha()]
    return all(word == word.upper() for word in long_words)


def to_lower_case(text: str, language: str) -> str:
    """Return a text in the lower case of its language."""
    if base_language(language) in DOTTED_I:
        text = text.replace("I", "\u0131").replace("\u0130", "i")
    return text.lower()


def with_one_capital(text: str, language: str) -> str:
    """Return a text in lower case after its first character, which stays as it is."""
    return text[:1] + to_lower_case(text[1:], language)


def to_capitals(text: str, language: str) -> str:
    """Return a text in the capitals of its language."""
    if base_language(language) in DOTTED_I:
        text = text.replace("i", "\u0130")
    return MICRO.join(part.upper() for part in text.split(MICRO))
