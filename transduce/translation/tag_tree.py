"""Where in a translation the markup of its source belongs: a tree of word ranges, found by word alignment.

A range lies within its parent's and beside its siblings', so that what was nested stays nested under any alignment.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

# Words: runs of letters, single ideographs, single marks. All but space is in exactly one.
_IDEOGRAPH = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARK = r"!-/:-@\[-`{-~\u00a1-\u00bf\u055d\u060c\u061b\u061f\u0964\u2010-\u205e\u3001-\u303f\uff01-\uff0f\uff1a-\uff20"
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[{_MARK}]|[^\s{_IDEOGRAPH}{_MARK}]+")
# A character that runs on into a neighbour like it.
IN_SPACED_WORD = re.compile(rf"[^\s{_IDEOGRAPH}{_MARK}]")

Range = tuple[int, int]
# (word of the plain source, word of the translation), as `words` counts them.
Alignment = Iterable[tuple[int, int]]


def words(text: str) -> list[Range]:
    """Start and end of each word of a text; an alignment counts these."""
    return [match.span() for match in _WORD.finditer(text)]


@dataclass(frozen=True)
class Span:
    """One thing of the source that is kept as it is."""

    text: str
    word: int  # of the plain source: its stand-in, or the word it stands before or in
    end: int  # for a tag that opens: the word behind what it encloses; else as `word`
    partner: int  # the span that closes, or opened, this tag; -1: it stands alone
    # The word of the plain source in its place; empty for a tag, which is only taken out.
    stand_in: str
    # Whether the space on its left, on its right was only put there for the model.
    glued: tuple[bool, bool]
    spaced: tuple[bool, bool] = (
        False,
        False,
    )  # whether a tag that stands alone has a space on its left, on its right


class Target:
    """The words of a translation, and the source words that each comes from."""

    def __init__(
        self,
        translation: str,
        source_words: int,
        alignment: Alignment,
        sure: Iterable[tuple[Range, int]] = (),
    ) -> None:
        """`sure` are links that overrule the alignment: characters of the translation, and their source word."""
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
        """The words in a row that come most from these source words: a stray link does not stretch it, nor does a mark
        that comes from elsewhere cut it."""
        best, best_total, start, total = None, 0.0, within[0], 0.0
        for word in range(*within):
            sources = self.sources[word]
            inside = sum(source[0] <= one < source[1] for one in sources)
            total += (
                self._votes[word] * (2 * inside - len(sources)) / len(sources) if sources else 0.0
            )
            if total <= 0:
                start, total = word + 1, 0.0
            elif total > best_total:
                best, best_total = (start, word + 1), total
        return best or (
            self._proportional(source[0], within),
            self._proportional(source[1], within),
        )

    def before(self, source: int, within: Range) -> int:
        """The word before which something belongs that stood before this source word."""
        for word in range(*within):
            if source in self.sources[word]:
                return word
        for word in reversed(range(*within)):
            if source - 1 in self.sources[word]:
                return word + 1
        return self._proportional(source, within)

    def _proportional(self, source: int, within: Range) -> int:
        place = source * len(self.words) // max(self.source_words, 1)
        return min(max(place, within[0]), within[1])


def place(spans: Sequence[Span], wanted: Container[int], target: Target) -> list[tuple[int, int]]:
    """Where each wanted span goes: (character of the translation it goes before, span), in the order of writing.

    Characters only ascend along the order, and the order is that of a walk through the tree: it is always balanced.
    """
    children = _tree(spans, wanted)
    starts = [start for start, _ in target.words] + [target.words[-1][1] if target.words else 0]
    ends = [0] + [end for _, end in target.words]  # ends[i]: where the word before word i ends
    placed: list[tuple[int, int]] = []
    at, everything = 0, (0, len(target.words))
    todo: list[tuple[int, Range | None, int]] = [(-1, everything, starts[-1])]
    while todo:  # depth first, without recursion: tags may be nested as deep as they like
        index, within, latest = todo.pop()
        source = (0, target.source_words)
        if within is None:  # a tag that closes
            at = latest
            placed.append((at, index))
            continue
        low, high = within
        if index >= 0:
            span = spans[index]
            at = min(max(at, ends[low] if span.text.startswith("</") else starts[low]), latest)
            placed.append((at, index))
            source = (span.word, span.end)
        closing = min(max(at, ends[high]), latest) if low < high else at
        if index >= 0 and span.partner > index:
            todo.append((span.partner, None, closing))
        arranged = _arrange(spans, children.get(index, ()), source, within, target)
        todo.extend((child, place, closing) for child, place in reversed(arranged))
    return placed


def _tree(spans: Sequence[Span], wanted: Container[int]) -> dict[int, list[int]]:
    """The spans directly inside each tag that opens, and at -1 those inside none."""
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
    """A range of its own for each of these spans, side by side within their parent's."""
    wishes, earliest = [], within[0]
    for index in siblings:
        span = spans[index]
        if span.word < span.end:
            wish = (
                within
                if (span.word, span.end) == source
                else target.run((span.word, span.end), within)
            )
        else:
            last = source[1] - bool(span.stand_in)
            edges = {
                last: within[1],
                source[0]: within[0],
            }  # what stood at the parent's edge stays there
            point = edges.get(span.word, -1)
            point = target.before(span.word, within) if point < 0 else point
            # Half of a pair that spans several sentences: keep the order.
            if span.partner < 0 and not span.stand_in:
                earliest = point = max(point, earliest)
            wish = (point, point)
        wishes.append((index, wish))
    arranged, free = [], within[0]
    for index, (low, high) in sorted(wishes, key=lambda wish: wish[1][0]):
        low = min(max(low, free), within[1])
        free = min(max(high, low), within[1])
        arranged.append((index, (low, free)))
    return arranged
