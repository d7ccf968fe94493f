"""Documents: pieces of text to translate and, between them, layout that is kept exactly.

Nothing is ever lost: joined again, the pieces and the layout are the text. A sentence that is too
long for the model becomes several pieces, and the document has a notice about it. The library
sentencex (extra `text`) finds sentences; without it, each line is one sentence.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from itertools import pairwise
from typing import Literal, get_args

from transduce.data.languages import base_language
from transduce.errors import InputError
from transduce.translation.markup import find
from transduce.translation.tag_tree import Range

CountTokens = Callable[[str], int]
Segmenter = Callable[[str, str], Iterable[str]]  # language, line -> sentences
# Where a text is split: at the ends of lines and sentences; only at those of sentences, where the
# end of a line is a space; or only where it is too long. Block-level tags always split it.
Split = Literal["lines", "sentences", "nothing"]
SPLITS: tuple[Split, ...] = get_args(Split)
BLOCK = 10_000  # characters that are searched for sentences at once
FIRST_SIZE = 256  # characters: the first part of a long sentence that is tried
UNSPACED = {"ja", "lzh", "wuu", "yue", "zh"}  # languages without spaces between sentences

# Line ends, tabs and block-level tags separate sentences and belong to none.
_BLOCKS = (
    "address|article|aside|blockquote|body|br|center|dd|div|dl|dt|figcaption|figure|footer|form"
    "|h[1-6]|head|header|hr|html|li|main|nav|ol|option|p|pre|section|select|table|tbody|td|tfoot"
    "|th|thead|title|tr|ul"
)
_BLOCK_TAG = rf"</?(?:{_BLOCKS})(?:\s[^<>]*)?/?>"
_ONLY_TAGS = re.compile(_BLOCK_TAG, re.IGNORECASE)
_LAYOUT = re.compile(rf"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+|{_BLOCK_TAG}", re.IGNORECASE)
# In Markdown, so do the bars of a table's row, and a line that begins or ends a block of code.
_ROW = re.compile(r"^[ \t]*\|[^\n]*\|[ \t]*$", re.MULTILINE)
_BAR = re.compile(r"(?<!\\)\|")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[^\n`]*$", re.MULTILINE)

# Where a long sentence may be split. \uff0c is the full-width comma, \u2014 the em dash, and so on.
_QUOTES = r"[\"')\]}\u00bb\u2019\u201d\u300d\u300f\uff09]*"
_STRONG = re.compile(
    rf"[.!?;:\u2026\u061b\u061f\u0964]{_QUOTES}(?=\s)|[\u3002\uff01\uff1a\uff1b\uff1f]{_QUOTES}"
)
_WEAK = re.compile(rf"[,\u060c]{_QUOTES}(?=\s)|[\u3001\uff0c]|\s[-\u2013](?=\s)|\u2014")
_SPACE = re.compile(r"\s+")
_CLOSING = re.compile(_QUOTES)
_IN_NAME = re.compile(r"\w\.\w", re.ASCII)  # of a file or a host: no sentence ends at its dot
_SURROGATE = re.compile("[\ud800-\udfff]")
# Such as U+00A0, on which sentencex may panic, or the end of a line that is a space.
_UNUSUAL_SPACE = re.compile(r"[^\S ]")


@dataclass(frozen=True)
class Piece:
    """One sentence, or a part of one that was too long."""

    before: str  # the text between the previous piece and this one
    text: str
    part: int = 1
    parts: int = 1  # more than 1 if the sentence was split


@dataclass(frozen=True)
class Document:
    """A text as pieces to translate, with everything before, between and after them."""

    pieces: tuple[Piece, ...]
    after: str
    language: str

    @property
    def notices(self) -> list[str]:
        """Messages to the reader about sentences that were split."""
        return [
            f'the sentence "{piece.text[:40]}..." is longer than the model accepts and was split '
            f"into {piece.parts} parts"
            for piece in self.pieces
            if piece.part == 1 and piece.parts > 1
        ]


def split(
    text: str,
    language: str = "en",
    at: Split = "lines",
    *,
    count_tokens: CountTokens | None = None,
    max_tokens: int = 0,
) -> Document:
    """Return the sentences of a text, each of at most `max_tokens` tokens (0: any length).

    Parts without a letter or digit, such as a line of dashes or an emoji, count as layout.
    """
    if max_tokens < 0 or (max_tokens and not count_tokens):
        raise InputError(
            f"max_tokens is {max_tokens}; expected 0, or a positive number and count_tokens"
        )

    def fits(part: str) -> bool:
        return not (max_tokens and count_tokens) or count_tokens(part.strip()) <= max_tokens

    pieces = []
    done = 0  # the end of the last piece
    for start, end in _sentences(text, language, at):
        ranges = []
        cuts = [start + cut for cut in _cut(text[start:end], fits)]
        for cut, next_cut in pairwise([start, *cuts]):
            low, high = _stripped(text, cut, next_cut)
            if any(map(str.isalnum, text[low:high])):
                ranges.append((low, high))
        for part, (low, high) in enumerate(ranges, start=1):
            pieces.append(Piece(text[done:low], text[low:high], part, len(ranges)))
            done = high
    return Document(tuple(pieces), text[done:], language)


def join(document: Document, translations: Sequence[str], language: str | None = None) -> str:
    """Return the document with its pieces replaced by translations, which are in `language`."""
    if len(translations) != len(document.pieces):
        raise InputError(
            f"got {len(translations)} translations for {len(document.pieces)} pieces; expected one "
            "for each"
        )
    parts = []
    for between, translation in zip(layout(document, language), translations, strict=True):
        parts += [between, translation]
    return "".join([*parts, document.after])


def layout(document: Document, language: str | None = None) -> list[str]:
    """Return what stands before each piece of a document when it is translated to `language`."""
    had_spaces = base_language(document.language) not in UNSPACED
    has_spaces = base_language(language or document.language) not in UNSPACED
    gaps = []
    for number, piece in enumerate(document.pieces):
        between = piece.before
        # Only one of the languages has spaces between sentences.
        if number and has_spaces != had_spaces and between in ("", " "):
            between = " " if has_spaces else ""
        gaps.append(between)
    return gaps


def splits_sentences() -> bool:
    """Return whether sentencex is installed; without it each line is one sentence."""
    return _find_segmenter() is not None


@cache
def _is_installed() -> bool:
    """Return whether sentencex can be found; a search that fails takes longer than a sentence."""
    return PathFinder.find_spec("sentencex") is not None


def _find_segmenter() -> Segmenter | None:
    """Return the function of sentencex that splits a line of a language into sentences."""
    if not _is_installed():
        return None
    try:
        library = import_module("sentencex")
    except ImportError:
        return None
    segment: Segmenter = library.segment
    return segment


def _sentences(text: str, language: str, at: Split) -> Iterator[Range]:
    """Yield the start and end of each sentence, including spaces."""
    segment = _one_sentence if at == "nothing" else _find_segmenter() or _one_sentence
    edges = [0]
    whole = _Protected(text)
    for low, high in _separators(text, at):
        if not whole.contains((low, high)) and low >= edges[-1]:
            edges += (low, high)
    edges.append(len(text))

    for start, end in zip(edges[::2], edges[1::2], strict=True):
        line = text[start:end]
        protected = _Protected(line)
        low = 0
        high = 0
        clean = _UNUSUAL_SPACE.sub(" ", _SURROGATE.sub("\ufffd", line))
        for sentence in _in_blocks(segment, base_language(language), clean):
            # Closing quotation marks belong to the sentence before them.
            high += len(sentence)
            closing = _CLOSING.match(line, high)
            edge = closing.end() if closing and not sentence[-1:].isspace() else high
            in_name = _IN_NAME.match(line, max(edge - 2, 0))
            if low < edge and not in_name and not protected.around(edge):
                yield start + low, start + edge
                low = edge
        # Whatever the library left out is one more sentence.
        if low < len(line):
            yield start + low, end


def _separators(text: str, at: Split) -> list[Range]:
    """Return the start and end of everything that separates sentences, in order."""
    if at != "lines":
        return [match.span() for match in _ONLY_TAGS.finditer(text)]
    found = [match.span() for match in _LAYOUT.finditer(text)]
    if "|" in text:
        rows = [row.span() for row in _ROW.finditer(text)]
        found += [bar.span() for start, end in rows for bar in _BAR.finditer(text, start, end)]
    if "```" in text or "~~~" in text:
        found += [fence.span() for fence in _FENCE.finditer(text)]
    return sorted(found)


def _in_blocks(segment: Segmenter, language: str, line: str) -> Iterator[str]:
    """Yield the sentences of a line that is given to the library a block at a time.

    Its time grows with the square of the length if a line has no spaces, as in Chinese.
    """
    start = 0
    size = BLOCK
    while start < len(line):
        found = list(segment(language, line[start : start + size]))
        is_last = start + size >= len(line)
        # The last sentence of a block may go on in the next one, and decides where the one before
        # it ends.
        whole = found if is_last else found[:-2]
        yield from whole
        if is_last:
            return
        start += sum(map(len, whole))
        size = BLOCK if whole else 2 * size


def _one_sentence(_: str, line: str) -> list[str]:
    return [line]


class _Protected:
    """The tags, placeholders and addresses of a text, which must not be split."""

    def __init__(self, text: str) -> None:
        self.ranges = find(text)

    def contains(self, inner: Range) -> bool:
        """Return whether a range is a part of one of them, as a line end in an ICU message is."""
        index = bisect_left(self.ranges, (inner[0] + 1, 0)) - 1
        if index < 0:
            return False
        start, end = self.ranges[index]
        return start <= inner[0] and inner[1] <= end and (start, end) != inner

    def around(self, place: int) -> Range | None:
        """Return the one that a cut at this place would split."""
        index = bisect_left(self.ranges, (place, 0)) - 1
        if index >= 0 and place < self.ranges[index][1]:
            return self.ranges[index]
        return None


def _cut(sentence: str, fits: Callable[[str], bool]) -> list[int]:
    """Return where the parts of a sentence end: one part if it fits, else as many as needed."""
    if len(sentence) <= FIRST_SIZE and fits(sentence):
        return [len(sentence)]
    cuts = []
    start = 0
    protected = _Protected(sentence)
    protected.ranges = [
        (low, high)
        for low, high in protected.ranges
        if high - low <= FIRST_SIZE or fits(sentence[low:high])
    ]
    while (fit := _longest(sentence, start, protected, fits)) < len(sentence):
        start = _best_cut(sentence, start, fit, protected, fits)
        cuts.append(start)
    return [*cuts, len(sentence)]


def _longest(sentence: str, start: int, protected: _Protected, fits: Callable[[str], bool]) -> int:
    """Return the end of the longest part from `start` that fits.

    It is found by doubling and bisection, so that the tokens of a huge rest are never counted. A
    part that ends inside of something that is copied is judged with all of it.
    """

    def does_fit(end: int) -> bool:
        around = protected.around(end)
        return fits(sentence[start : around[1] if around else end])

    low = start
    size = FIRST_SIZE
    while does_fit(min(start + size, len(sentence))):
        if start + size >= len(sentence):
            return len(sentence)
        low = start + size
        size *= 2
    high = min(start + size, len(sentence))
    while high - low > 1:
        middle = (low + high) // 2
        if does_fit(middle):
            low = middle
        else:
            high = middle
    if low == start:
        return start + 1
    around = protected.around(low)
    return around[1] if around else low


def _best_cut(
    sentence: str, start: int, fit: int, protected: _Protected, fits: Callable[[str], bool]
) -> int:
    """Return the best place to cut up to `fit`."""
    # The end of a clause, preferably not too near the start.
    for earliest in (start + (fit - start) // 3, start):
        for pattern in (_STRONG, _WEAK):
            cut = _last(pattern, sentence, start, fit, protected)
            if cut > earliest:
                return cut
    # A space.
    cut = _last(_SPACE, sentence, start, fit, protected)
    if cut > start:
        return cut
    # The start or end of a tag or placeholder.
    around = protected.around(fit)
    if around and around[0] > start:
        return around[0]
    if around and fits(sentence[start : around[1]]):
        return around[1]
    # Any character.
    cut = fit
    while cut > start and _joined(sentence[cut - 1], sentence[cut]):
        cut -= 1
    return cut if cut > start else fit


def _joined(left: str, right: str) -> bool:
    """Return whether a reader sees two characters as one: a letter and its accent, an emoji."""
    return (
        unicodedata.category(right)[0] == "M"
        or "\u200d" in (left, right)
        or "\U0001f3fb" <= right <= "\U0001f3ff"
    )


def _last(
    pattern: re.Pattern[str], sentence: str, start: int, fit: int, protected: _Protected
) -> int:
    """Return the end of the last match up to `fit` at which a cut is allowed, or else `start`."""
    leading_space = _SPACE.match(sentence, start)
    begin = leading_space.end() if leading_space else start  # no part may be only space
    last = start
    for match in pattern.finditer(sentence, begin, fit):
        if not protected.around(match.end()):
            last = match.end()
    return last


def _stripped(text: str, start: int, end: int) -> Range:
    """Return the range without the spaces at its ends."""
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())
