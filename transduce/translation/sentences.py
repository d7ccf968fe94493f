"""Text in, text out: a document is pieces to translate and, between them, layout that is kept to the character.

Nothing is ever lost: joined again, the pieces are the text. A sentence that is too long for the model becomes several
pieces, and the document says so. Sentences are found by sentencex (extra `text`); without it a line is one sentence.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from transduce.errors import InputError, MissingExtra, require
from transduce.translation.markup import find
from transduce.translation.tag_tree import Range

CountTokens = Callable[[str], int]
UNSPACED = {"ja", "lzh", "wuu", "yue", "zh"}  # languages that put no space between sentences

# Line ends, tabs and block-level tags separate sentences and belong to none.
_BLOCKS = (
    "address|article|aside|blockquote|body|br|center|dd|div|dl|dt|figcaption|figure|footer|form|h[1-6]|head|header|hr|html"
    "|li|main|nav|ol|option|p|pre|section|select|table|tbody|td|tfoot|th|thead|title|tr|ul"
)
_LAYOUT = re.compile(
    rf"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+|</?(?:{_BLOCKS})(?:\s[^<>]*)?/?>", re.IGNORECASE
)

# Where a sentence that is too long may be cut. \uff0c is the full-width comma, \u2014 the long dash, and so on.
_QUOTES = r"[\"')\]}\u00bb\u2019\u201d\u300d\u300f\uff09]*"
_STRONG = re.compile(
    rf"[.!?;:\u2026\u061b\u061f\u0964]{_QUOTES}(?=\s)|[\u3002\uff01\uff1a\uff1b\uff1f]{_QUOTES}"
)
_WEAK = re.compile(rf"[,\u060c]{_QUOTES}(?=\s)|[\u3001\uff0c]|\s[-\u2013](?=\s)|\u2014")
_SPACE = re.compile(r"\s+")
_CLOSING = re.compile(_QUOTES)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Piece:
    """One sentence, or a part of one that was too long."""

    before: str  # what stands between the piece before and this one
    text: str
    part: int = 1
    parts: int = 1  # more than 1: the sentence was cut


@dataclass(frozen=True)
class Document:
    """A text as pieces to translate. What comes before, between and after them is kept."""

    pieces: tuple[Piece, ...]
    after: str
    language: str

    @property
    def notices(self) -> list[str]:
        """What a reader of the translation should know: the sentences that were cut."""
        return [
            f'the sentence "{piece.text[:40]}..." is longer than the model takes and was split into {piece.parts} parts'
            for piece in self.pieces
            if piece.part == 1 and piece.parts > 1
        ]


def split(
    text: str, language: str = "en", *, count_tokens: CountTokens | None = None, max_tokens: int = 0
) -> Document:
    """The sentences of a text, each of at most `max_tokens` tokens as `count_tokens` counts them; 0: of any length.

    What has no letter and no digit, such as a rule of dashes or an emoji, is layout: no model can improve it.
    """
    if max_tokens < 0 or (max_tokens and not count_tokens):
        raise InputError(
            f"max_tokens is {max_tokens}; expected 0, or a number and a function that counts tokens"
        )

    def fits(part: str) -> bool:
        return not (max_tokens and count_tokens) or count_tokens(part.strip()) <= max_tokens

    pieces, done = [], 0
    for start, end in _sentences(text, language):
        cuts = [start + place for place in _cut(text[start:end], fits)]
        ranges = [_stripped(text, low, high) for low, high in pairwise([start, *cuts])]
        ranges = [(low, high) for low, high in ranges if any(map(str.isalnum, text[low:high]))]
        for part, (low, high) in enumerate(ranges, start=1):
            pieces.append(Piece(text[done:low], text[low:high], part, len(ranges)))
            done = high
    return Document(tuple(pieces), text[done:], language)


def join(document: Document, translations: Sequence[str], language: str | None = None) -> str:
    """The document with its pieces replaced by their translations, which are in `language`, if that is another one."""
    if len(translations) != len(document.pieces):
        raise InputError(
            f"{len(translations)} translations for {len(document.pieces)} pieces; expected one for each"
        )
    had_spaces = _base(document.language) not in UNSPACED
    has_spaces = _base(language or document.language) not in UNSPACED
    written = []
    for number, (piece, translation) in enumerate(zip(document.pieces, translations, strict=True)):
        between = piece.before
        if number and has_spaces != had_spaces and between in ("", " "):
            between = " " if has_spaces else ""
        written += [between, translation]
    return "".join([*written, document.after])


def splits_sentences() -> bool:
    """Whether the library that finds sentences is installed; without it a line is one sentence."""
    try:
        require("sentencex", extra="text")
    except MissingExtra:
        return False
    return True


def _base(language: str) -> str:
    return re.split("[-_]", language.lower(), maxsplit=1)[0]


def _sentences(text: str, language: str) -> Iterator[Range]:
    """Start and end of each sentence with the space around it. None reaches over the end of a line."""
    segment = (
        require("sentencex", extra="text").segment if splits_sentences() else lambda _, line: [line]
    )
    edges = [0, *(edge for match in _LAYOUT.finditer(text) for edge in match.span()), len(text)]
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        line = text[start:end]
        kept, low, high = _Kept(line), 0, 0
        for sentence in segment(_base(language), _SURROGATE.sub("\ufffd", line)):
            high += len(sentence)
            closing = _CLOSING.match(line, high)
            edge = closing.end() if closing and not sentence[-1:].isspace() else high
            if low < edge and not kept.around(edge):
                yield start + low, start + edge
                low = edge
        if low < len(line):  # the library is not trusted to have seen it all
            yield start + low, end


class _Kept:
    """The tags, placeholders and addresses of a text, which are not cut."""

    def __init__(self, text: str) -> None:
        self.ranges = find(text)

    def around(self, place: int) -> Range | None:
        """The one that a cut at this place would hurt."""
        index = bisect_left(self.ranges, (place, 0)) - 1
        return self.ranges[index] if index >= 0 and place < self.ranges[index][1] else None


def _cut(sentence: str, fits: Callable[[str], bool]) -> list[int]:
    """Where the parts of a sentence end: one part if it fits, else as many as good places to cut make it."""
    cuts, start, kept = [], 0, None
    while (fit := _longest(sentence, start, fits)) < len(sentence):
        kept = kept or _Kept(sentence)
        start = _best_cut(sentence, start, fit, kept, fits)
        cuts.append(start)
    return [*cuts, len(sentence)]


def _longest(sentence: str, start: int, fits: Callable[[str], bool]) -> int:
    """The end of the longest part from `start` that fits, by doubling and halving: a huge rest is never counted."""
    low, size = start, 256
    while fits(sentence[start : start + size]):
        if start + size >= len(sentence):
            return len(sentence)
        low, size = start + size, 2 * size
    high = min(start + size, len(sentence))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(sentence[start:middle]) else (low, middle)
    return max(low, start + 1)


def _best_cut(sentence: str, start: int, fit: int, kept: _Kept, fits: Callable[[str], bool]) -> int:
    """The last good place up to `fit`: a clause not too near the start, any clause, a space, any character."""
    for earliest in (start + (fit - start) // 3, start):
        for pattern in (_STRONG, _WEAK):
            found = _last(pattern, sentence, start, fit, kept)
            if found > earliest:
                return found
    found = _last(_SPACE, sentence, start, fit, kept)
    if found > start:
        return found
    hurt = kept.around(fit)
    if hurt and hurt[0] > start:
        return hurt[0]
    if hurt and fits(sentence[start : hurt[1]]):
        return hurt[1]
    place = fit
    while place > start and _joined(sentence[place - 1], sentence[place]):
        place -= 1
    return place if place > start else fit


def _joined(left: str, right: str) -> bool:
    """Whether two characters are one to a reader: a letter and its accent, the parts of an emoji."""
    return (
        unicodedata.category(right)[0] == "M"
        or "\u200d" in (left, right)
        or "\U0001f3fb" <= right <= "\U0001f3ff"
    )


def _last(pattern: re.Pattern[str], sentence: str, start: int, fit: int, kept: _Kept) -> int:
    """The end of the last match up to `fit` that nothing forbids to cut at; `start` if there is none."""
    first = _SPACE.match(sentence, start)
    begin = first.end() if first else start  # a part of nothing but space would be no part
    found = start
    for match in pattern.finditer(sentence, begin, fit):
        if not kept.around(match.end()):
            found = match.end()
    return found


def _stripped(text: str, start: int, end: int) -> Range:
    """The range without the space at its ends."""
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())
