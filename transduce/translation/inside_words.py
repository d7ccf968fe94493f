"""Tags inside a word, such as a subscript in H2O: alignments know only whole words."""

from __future__ import annotations

from collections.abc import Sequence

from transduce.translation.markup import Protected
from transduce.translation.tag_tree import Range, words


def inside_words(
    placed: Sequence[tuple[int, int]], protected: Protected, translation: str
) -> list[tuple[int, int]]:
    """Return the positions of tags, with those inside a word moved to their place in its copy.

    If only the beginning or the end of the word is the same, that decides.
    """
    source = words(protected.plain)
    by_start = {start: (start, end) for start, end in words(translation)}
    by_end = {end: (start, end) for start, end in by_start.values()}
    copies: dict[int, Range] = {}  # where the words are that have tags inside
    moved = []
    last = 0
    for usual, index in placed:
        span = protected.spans[index]
        at = usual
        if span.inside:
            copy = copies.get(span.word) or (by_start if span.partner > index else by_end).get(at)
            start, end = source[span.word]
            head = protected.plain[start : start + span.inside]
            tail = protected.plain[start + span.inside : end]
            if copy and translation.endswith(tail, *copy):
                at = copy[1] - len(tail)
                copies[span.word] = copy
            elif copy and translation.startswith(head, *copy):
                at = copy[0] + len(head)
                copies[span.word] = copy
        elif 0 <= span.partner < index and protected.spans[span.partner].word == span.word - 1:
            # It closes what is inside the word, up to its end.
            at = copies.get(span.word - 1, (0, at))[1]
        last = max(last, at)
        moved.append((last, index))
    return moved
