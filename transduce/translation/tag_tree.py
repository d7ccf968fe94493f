"""The positions of markup in a translation: a tree of word ranges, found by word alignment.

Each range is within its parent's and beside its siblings', so that nested tags stay nested under
any alignment.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

# Words are runs of letters, single ideographs and single marks. Only spaces are in no word.
_IDEOGRAPH = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARK = (
    r"!-/:-@\[-`{-~\u00a1-\u00bf\u055d\u060c\u061b\u061f\u0964\u2010-\u205e\u3001-\u303f"
    r"\uff01-\uff0f\uff1a-\uff20"
)
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[{_MARK}]|[^\s{_IDEOGRAPH}{_MARK}]+")
# A character that forms one word with a neighbour like it.
IN_SPACED_WORD = re.compile(rf"[^\s{_IDEOGRAPH}{_MARK}]")

Range = tuple[int, int]
# (index of a word in the plain source, index of a word in the translation).
Alignment = Iterable[tuple[int, int]]


def words(text: str) -> list[Range]:
    """Return the start and end of each word of a text, as an alignment counts them."""
    return [match.span() for match in _WORD.finditer(text)]


@dataclass(frozen=True)
class Span:
    """A tag or placeholder of the source that is kept as it is."""

    text: str
    source: str  # what stood in the source: the same, except for a term of a glossary
    word: int  # in the plain source: its stand-in, or the word before or in which it stands
    end: int  # for an opening tag: the word after those that it encloses; else the same as `word`
    partner: int  # the span that closes or opened this tag; -1 if it has none
    # The word that replaces it in the plain source; empty for a tag, which is only removed.
    stand_in: str
    # Whether the spaces on its left and right were added for the model.
    glued: tuple[bool, bool]
    # Whether a tag without a partner has spaces on its left and right.
    spaced: tuple[bool, bool] = (False, False)
    # Whether a tag without a partner is attached to the word before it, such as a footnote.
    follows: bool = False
    inside: int = 0  # characters of its word before a tag that stands inside it
    is_long_word: bool = False  # whether it is a word that is too long to be translated


class Target:
    """The words of a translation, each with the source words to which it is linked."""

    def __init__(
        self,
        translation: str,
        source_words: int,
        alignment: Alignment,
        sure: Iterable[tuple[Range, int]] = (),
    ) -> None:
        """Link the words.

        `sure` has links that overrule the alignment: a range of characters in the translation, and
        its source word.
        """
        self.words = words(translation)
        self._votes = [
            1.0 if any(map(str.isalnum, translation[start:end])) else 0.5
            for start, end in self.words
        ]
        self.source_words = source_words
        self.sources: list[set[int]] = [set() for _ in self.words]
        for source, word in alignment:
            if 0 <= source < source_words and 0 <= word < len(self.words):
                self.sources[word].add(source)
        for (start, end), source in sure:
            for word, (first, last) in enumerate(self.words):
                if first < end and start < last:
                    self.sources[word] = {source}
                else:
                    self.sources[word].discard(source)

    def run(self, source: Range, within: Range) -> Range:
        """Return the run of words that is linked most to these source words.

        A stray link does not extend the run, and a mark that is linked elsewhere does not split it.
        This is the contiguous range with the largest sum of votes (Kadane's algorithm).
        """
        best = None
        best_total = 0.0
        start = within[0]
        total = 0.0
        for word in range(*within):
            links = self.sources[word]
            if links:
                inside = sum(source[0] <= link < source[1] for link in links)
                total += self._votes[word] * (2 * inside - len(links)) / len(links)
            if total <= 0:
                start = word + 1
                total = 0.0
            elif total > best_total:
                best = (start, word + 1)
                best_total = total
        if best is not None:
            return best
        return self._proportional(source[0], within), self._proportional(source[1], within)

    def before(self, source: int, within: Range, *, follows: bool = False) -> int:
        """Return the word before which a span belongs that was before this source word.

        If it `follows` the word before it, the position of that one decides.
        """
        first = [word for word in range(*within) if source in self.sources[word]][:1]
        last = [word + 1 for word in range(*within) if source - 1 in self.sources[word]][-1:]
        found = last + first if follows else first + last
        return found[0] if found else self._proportional(source, within)

    def _proportional(self, source: int, within: Range) -> int:
        """Return the word at the same relative position."""
        place = source * len(self.words) // max(self.source_words, 1)
        return min(max(place, within[0]), within[1])


def place(spans: Sequence[Span], wanted: Container[int], target: Target) -> list[tuple[int, int]]:
    """Return the position of each wanted span: (character before which it goes, span).

    The order is that of a walk through the tree, along which characters only ascend. So the result
    is always balanced.
    """
    children = _tree(spans, wanted)
    starts = [start for start, _ in target.words] + [target.words[-1][1] if target.words else 0]
    ends = [0] + [end for _, end in target.words]  # ends[i] is the end of the word before word i
    placed: list[tuple[int, int]] = []
    at = 0  # the position of the last span

    # Depth first, without recursion, since tags may be nested to any depth. Each entry is a span,
    # its range of words and the last character that it may take; a closing tag has no range.
    todo: list[tuple[int, Range | None, int]] = [(-1, (0, len(target.words)), starts[-1])]
    while todo:
        index, within, latest = todo.pop()
        if within is None:
            at = latest
            placed.append((at, index))
            continue

        low, high = within
        source = (0, target.source_words)
        if index >= 0:
            span = spans[index]
            is_behind = span.follows or span.text.startswith("</")
            earliest = ends[low] if is_behind else starts[low]
            at = min(max(at, earliest), latest)
            placed.append((at, index))
            source = (span.word, span.end)

        # The closing tag comes after everything inside.
        closing = min(max(at, ends[high]), latest) if low < high else at
        if index >= 0 and span.partner > index:
            todo.append((span.partner, None, closing))
        arranged = _arrange(spans, children.get(index, ()), source, within, target)
        for child, child_range in reversed(arranged):
            todo.append((child, child_range, closing))
    return placed


def _tree(spans: Sequence[Span], wanted: Container[int]) -> dict[int, list[int]]:
    """Return the spans directly inside each opening tag, and under -1 those inside none."""
    children: dict[int, list[int]] = {}
    opened = [-1]
    for index, span in enumerate(spans):
        if 0 <= span.partner < index:
            opened.pop()
        elif index in wanted:
            children.setdefault(opened[-1], []).append(index)
            if span.partner > index:
                opened.append(index)
    return children


def _arrange(
    spans: Sequence[Span], siblings: Sequence[int], source: Range, within: Range, target: Target
) -> list[tuple[int, Range]]:
    """Return a range for each of these spans, side by side within their parent's."""
    # Find the range that each span would take alone.
    wishes = []
    earliest = within[0]
    for index in siblings:
        span = spans[index]
        if span.word < span.end:
            encloses_all = (span.word, span.end) == source
            wish = within if encloses_all else target.run((span.word, span.end), within)
        else:
            # A span at the edge of its parent stays there.
            last = source[1] - bool(span.stand_in)
            edges = {last: within[1], source[0]: within[0]}
            at_edge = span.word in edges
            point = (
                edges[span.word]
                if at_edge
                else target.before(span.word, within, follows=span.follows)
            )
            # Half of a pair that extends over several sentences: keep the order.
            if span.partner < 0 and not span.stand_in:
                point = max(point, earliest)
                earliest = point
            wish = (point, point)
        wishes.append((index, wish))

    # Move them apart, from left to right.
    arranged = []
    free = within[0]
    for index, (low, high) in sorted(wishes, key=lambda wish: wish[1][0]):
        low = min(max(low, free), within[1])
        free = min(max(high, low), within[1])
        arranged.append((index, (low, free)))
    return arranged
