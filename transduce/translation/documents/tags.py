"""Inline markup of a document as tags that the translator keeps, and back.

The content of a paragraph is a list of tokens: texts, and marks for everything between them. A mark
is written as a tag (`<x3>`, `</x3>`, `<x3/>`), or as a placeholder (`{x3}`) if the reader sees it
as a word, such as a piece of code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_SPACES = re.compile(r"[ \t\r\n\f]+")


class Kind(Enum):
    """What a mark stands for."""

    OPEN = "<{}>"
    CLOSE = "</{}>"
    SINGLE = "<{}/>"  # something that is not read, such as a bookmark
    WORD = "{{{}}}"  # something that is read as a word of the sentence


@dataclass(frozen=True)
class Mark:
    """A place of markup in a text. An opening mark and its closing mark have the same number."""

    kind: Kind
    number: int


Token = str | Mark


@dataclass(frozen=True)
class Segment:
    """The content of a paragraph, as a text to translate between markup that stays outside."""

    before: tuple[Token, ...]
    tokens: tuple[Token, ...]
    after: tuple[Token, ...]
    name: str  # of the tags, which the text does not contain

    @property
    def text(self) -> str:
        """The text to translate, with its tags."""
        return "".join(_written(token, self.name) for token in self.tokens)

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate."""
        return any(isinstance(token, str) and _has_words(token) for token in self.tokens)

    def replaced(self, translation: str) -> list[Token]:
        """Return the tokens with the translation in place of the text."""
        found = self._parsed(translation)
        if not _is_balanced(found, self.tokens):
            # Tags of the user's own text may cross ours: keep the marks, without their positions.
            found = self._at_first_text(translation)
        return [*self.before, *found, *self.after]

    def _parsed(self, translation: str) -> list[Token]:
        marks = {_written(token, self.name): token for token in self.tokens if _is_mark(token)}
        parts = re.split(rf"(</?{self.name}\d+/?>|\{{{self.name}\d+\}})", translation)
        return [marks.get(part, part) for part in parts if part]

    def _at_first_text(self, translation: str) -> list[Token]:
        plain = "".join(token for token in self._parsed(translation) if isinstance(token, str))
        tokens: list[Token] = []
        for token in self.tokens:
            if isinstance(token, Mark):
                tokens.append(token)
            elif plain and _has_words(token):
                tokens.append(plain)
                plain = ""
        return tokens


def segment(content: Sequence[Token], *, collapses_space: bool = False) -> Segment:
    """Return the segment of a paragraph.

    Markup and spaces at its ends, and marks around all of it, stay outside the text. In some
    formats a line end inside the text is only a space (`collapses_space`).
    """
    tokens = list(_without_edges(content))
    low = 0
    high = len(tokens)
    while low < high:
        first = tokens[low]
        last = tokens[high - 1]
        encloses_all = (
            isinstance(first, Mark)
            and first.kind is Kind.OPEN
            and last == Mark(Kind.CLOSE, first.number)
        )
        if encloses_all:
            low += 1
            high -= 1
        elif _stays_outside(first):
            low += 1
        elif _stays_outside(last):
            high -= 1
        else:
            break
    inside = tuple(tokens[low:high])
    if collapses_space:
        inside = tuple(
            _SPACES.sub(" ", token) if isinstance(token, str) else token for token in inside
        )
    return Segment(tuple(tokens[:low]), inside, tuple(tokens[high:]), _unused_name(inside))


def _without_edges(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens with the spaces at the ends of each text as tokens of their own."""
    for token in tokens:
        if not isinstance(token, str):
            yield token
            continue
        core = token.strip()
        start = token.find(core)
        for part in (token[:start], core, token[start + len(core) :]):
            if part:
                yield part


def _stays_outside(token: Token) -> bool:
    if isinstance(token, Mark):
        return token.kind is Kind.SINGLE
    return not token.strip()


def _is_mark(token: Token) -> bool:
    return isinstance(token, Mark)


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _written(token: Token, name: str) -> str:
    return token if isinstance(token, str) else token.kind.value.format(f"{name}{token.number}")


def _unused_name(tokens: Sequence[Token]) -> str:
    """Return a name of tags that is not in the text."""
    text = "".join(token for token in tokens if isinstance(token, str))
    used = {len(found) for found in re.findall(r"[<{/](x+)\d", text)}
    length = next(length for length in itertools.count(1) if length not in used)
    return "x" * length


def _is_balanced(tokens: Sequence[Token], source: Sequence[Token]) -> bool:
    """Return whether the tokens have every mark of the source once, correctly nested."""
    marks = [token for token in tokens if isinstance(token, Mark)]
    expected = [token for token in source if isinstance(token, Mark)]
    if len(marks) != len(expected) or set(marks) != set(expected):
        return False
    opened: list[int] = []
    for mark in marks:
        if mark.kind is Kind.OPEN:
            opened.append(mark.number)
        elif mark.kind is Kind.CLOSE and (not opened or opened.pop() != mark.number):
            return False
    return True
