"""Sentences that are too long for the model, cut at the ends of clauses, or else at spaces.

A tag, a placeholder or an address is cut only if it is too long itself.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable

from transduce.translation.markup_patterns import PROTECTED, find
from transduce.translation.tag_tree import Range

FIRST_SIZE = 256  # characters: the first part of a long sentence that is tried

# Where a long sentence may be split. \uff0c is the full-width comma, \u2014 the em dash, and so on.
QUOTES = r"[\"')\]}\u00bb\u2019\u201d\u300d\u300f\uff09]*"
_STRONG = re.compile(
    rf"[.!?;:\u2026\u061b\u061f\u0964]{QUOTES}(?=\s)|[\u3002\uff01\uff1a\uff1b\uff1f]{QUOTES}"
)
_WEAK = re.compile(rf"[,\u060c]{QUOTES}(?=\s)|[\u3001\uff0c]|\s[-\u2013](?=\s)|\u2014")
_SPACE = re.compile(r"\s+")


class Protected:
    """The tags, placeholders, addresses and terms of a text, which must not be split."""

    def __init__(self, text: str, pattern: re.Pattern[str] = PROTECTED) -> None:
        self.ranges = find(text, pattern)

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


def part_ends(
    sentence: str, fits: Callable[[str], bool], pattern: re.Pattern[str] = PROTECTED
) -> list[int]:
    """Return where the parts of a sentence end: one part if it fits, else as many as needed."""
    if len(sentence) <= FIRST_SIZE and fits(sentence):
        return [len(sentence)]
    cuts = []
    start = 0
    protected = Protected(sentence, pattern)
    protected.ranges = [
        (low, high)
        for low, high in protected.ranges
        if high - low <= FIRST_SIZE or fits(sentence[low:high])
    ]
    while (fit := _longest(sentence, start, protected, fits)) < len(sentence):
        start = _best_cut(sentence, start, fit, protected, fits)
        cuts.append(start)
    return [*cuts, len(sentence)]


def _longest(sentence: str, start: int, protected: Protected, fits: Callable[[str], bool]) -> int:
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
    sentence: str, start: int, fit: int, protected: Protected, fits: Callable[[str], bool]
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
    pattern: re.Pattern[str], sentence: str, start: int, fit: int, protected: Protected
) -> int:
    """Return the end of the last match up to `fit` at which a cut is allowed, or else `start`."""
    leading_space = _SPACE.match(sentence, start)
    begin = leading_space.end() if leading_space else start  # no part may be only space
    last = start
    for match in pattern.finditer(sentence, begin, fit):
        if not protected.around(match.end()):
            last = match.end()
    return last
