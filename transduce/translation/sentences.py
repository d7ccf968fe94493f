"""Documents: pieces of text to translate and, between them, layout that is kept exactly.

Nothing is ever lost: joined again, the pieces and the layout are the text. A sentence that is too
long for the model becomes several pieces, and the document has a notice about it. The library
sentencex (extra `text`) finds sentences; without it, each line is one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from itertools import pairwise
from typing import Literal, get_args

from transduce.data.languages import base_language
from transduce.errors import InputError
from transduce.translation.long_sentences import QUOTES, Protected, part_ends
from transduce.translation.markup_patterns import ATTRIBUTES, PROTECTED
from transduce.translation.tag_tree import Range

CountTokens = Callable[[str], int]
Segmenter = Callable[[str, str], Iterable[str]]  # language, line -> sentences
# Where a text is split: at the ends of lines and sentences; only at those of sentences, where the
# end of a line is a space; or only where it is too long. Block-level tags always split it.
Split = Literal["lines", "sentences", "nothing"]
SPLITS: tuple[Split, ...] = get_args(Split)
BLOCK = 10_000  # characters that are searched for sentences at once
UNSPACED = {"ja", "lzh", "wuu", "yue", "zh"}  # languages without spaces between sentences

# Line ends, tabs, NUL and block-level tags separate sentences and belong to none.
_BLOCKS = (
    "address|article|aside|blockquote|body|br|center|dd|div|dl|dt|figcaption|figure|footer|form"
    "|h[1-6]|head|header|hr|html|li|main|nav|ol|option|p|pre|section|select|table|tbody|td|tfoot"
    "|th|thead|title|tr|ul"
)
_BLOCK_TAG = rf"</?(?:{_BLOCKS}){ATTRIBUTES}/?>"
_ONLY_TAGS = re.compile(_BLOCK_TAG, re.IGNORECASE)
_LAYOUT = re.compile(rf"[\x00\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+|{_BLOCK_TAG}", re.IGNORECASE)
# In Markdown, so do the bars of a table's row, and a line that begins or ends a block of code.
_ROW = re.compile(r"^[ \t]*\|[^\n]*\|[ \t]*$", re.MULTILINE)
_BAR = re.compile(r"(?<!\\)\|")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[^\n`]*$", re.MULTILINE)

_CLOSING = re.compile(QUOTES)
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
    kept: re.Pattern[str] = PROTECTED,
) -> Document:
    """Return the sentences of a text, each of at most `max_tokens` tokens (0: any length).

    What matches `kept` is not split, even if it looks like the end of a sentence.
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
    for start, end in _sentences(text, language, at, kept):
        ranges = []
        cuts = [start + place for place in part_ends(text[start:end], fits, kept)]
        for begin, stop in pairwise([start, *cuts]):
            low, high = _stripped(text, begin, stop)
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


def _sentences(text: str, language: str, at: Split, kept: re.Pattern[str]) -> Iterator[Range]:
    """Yield the start and end of each sentence, including spaces."""
    segment = _one_sentence if at == "nothing" else _find_segmenter() or _one_sentence
    edges = [0]
    whole = Protected(text, kept)
    for low, high in _separators(text, at):
        if not whole.contains((low, high)) and low >= edges[-1]:
            edges += (low, high)
    edges.append(len(text))

    for start, end in zip(edges[::2], edges[1::2], strict=True):
        line = text[start:end]
        protected = Protected(line, kept)
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


def _stripped(text: str, start: int, end: int) -> Range:
    """Return the range without the spaces at its ends."""
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())
