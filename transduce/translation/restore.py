"""Put markup and placeholders back into a translation, each exactly once.

The word alignment gives the positions. Balanced tags stay balanced: they are placed as a tree of
word ranges, each within its parent's. Where the alignment is wrong, or a stand-in was not copied,
the position may be off by some words.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transduce.translation.inside_words import inside_words
from transduce.translation.markup import Protected
from transduce.translation.tag_tree import IN_SPACED_WORD, Alignment, Span, Target, place, words

# Placeholders that are filled in by position and not by name: their order must not change.
_POSITIONAL = re.compile(r"%(?!%|\d+\$|\()|\{\}$")
_SPACED_MARK = re.compile(r" [,.](?=\s|$)")


@dataclass(frozen=True)
class Restored:
    """A translation with its markup, and the words of it that an alignment counts."""

    text: str
    words: tuple[str, ...]  # placeholders are words, tags are not
    # (index of a word in the plain source, index in `words`).
    links: tuple[tuple[int, int], ...]


def needs_alignment(translation: str, protected: Protected) -> bool:
    """Return whether the position of a span is unknown: of a tag, or a stand-in that is missing."""
    found = {index for _, _, index in find_stand_ins(translation, protected)}
    return not found.issuperset(range(len(protected.spans)))


def restore(translation: str, protected: Protected, alignment: Alignment = ()) -> str:
    """Put every span back into the translation of the plain text, exactly once.

    The alignment of words determines where. Without links it is the relative position in the
    sentence. Links to words that do not exist are ignored.
    """
    if not protected.spans:
        return translation
    return restore_words(translation, protected, alignment).text


def restore_words(translation: str, protected: Protected, alignment: Alignment) -> Restored:
    """Put every span back, and return the alignment with the words of the result.

    A model may lose a stand-in, write it twice or write half of it. The words are those of the
    result, and a placeholder is linked to itself.
    """
    spans = protected.spans
    copies = find_stand_ins(translation, protected)
    sure = [((start, end), spans[index].word) for start, end, index in copies if index >= 0]
    target = Target(translation, len(words(protected.plain)), alignment, sure)
    copied = {index for _, _, index in copies}
    missing = set(range(len(spans))) - copied
    placed = inside_words(place(spans, missing, target), protected, translation)
    return _write(translation, spans, copies, target, placed)


def find_stand_ins(translation: str, protected: Protected) -> list[tuple[int, int, int]]:
    """Return where the model has copied stand-ins: (start, end, span).

    The span is -1 for a second copy and for a stand-in that the model invented, which are removed.
    """
    known = {span.stand_in: index for index, span in enumerate(protected.spans) if span.stand_in}
    if not known:
        return []
    name = next(iter(known)).rstrip("0123456789")
    pattern = f"(?:(?<![0-9A-Za-z]){name} ?|(?-i:{name}))([0-9]+)"
    copies = []
    seen = set()
    for match in re.finditer(pattern, translation, re.IGNORECASE):
        digits = match[1]
        exact = match[0] == f"{name}{digits}"
        # The model may have joined further digits to a stand-in.
        length = len(digits)
        while exact and length > 1 and f"{name}{digits[:length]}" not in known:
            length -= 1
        index = known.get(f"{name}{digits[:length]}", -1 if exact else None)
        if index is not None:
            further_digits = len(digits) - length if index >= 0 else 0
            end = match.end() - further_digits
            copies.append((match.start(), end, -1 if index in seen else index))
            seen.add(index)
    lost = [index for index in known.values() if index not in seen]
    return copies + _find_halves(translation, protected, name, lost, copies)


def _find_halves(
    translation: str,
    protected: Protected,
    name: str,
    lost: list[int],
    copies: Sequence[tuple[int, int, int]],
) -> list[tuple[int, int, int]]:
    """Return the remains of stand-ins of which only the number or only the letters were copied."""
    taken = {position for start, end, _ in copies for position in range(start, end)}
    source = protected.words()  # without stand-ins
    candidates = []
    for start, end in words(translation):
        word = translation[start:end]
        if start not in taken and word not in source:
            candidates.append((start, end, word))

    numbers = {protected.spans[index].stand_in.removeprefix(name): index for index in lost}
    halves = []
    for start, end, word in candidates:
        if word in numbers:
            halves.append((start, end, numbers.pop(word)))

    # Letters without a number are given to the remaining spans in order.
    remaining = iter(numbers.values())
    for start, end, word in candidates:
        if word == name:
            halves.append((start, end, next(remaining, -1)))
    return halves


def _write(
    translation: str,
    spans: Sequence[Span],
    copies: Sequence[tuple[int, int, int]],
    target: Target,
    placed: Sequence[tuple[int, int]],
) -> Restored:
    """Return the translation with copied stand-ins replaced and placed spans inserted."""
    writer = _Writer(translation, spans, target)
    # An insertion inside a copy goes behind it; at the same position insertions come first.
    insertions = []
    for at, index in _behind(placed, copies):
        insertions.append((at, at, index))
    for start, end, index in sorted([*insertions, *copies], key=lambda item: item[0]):
        writer.copy_until(start)
        writer.cursor = end
        if index < 0:
            writer.drop_last_space()
        elif spans[index].stand_in:
            writer.write_placeholder(spans[index], was_copied=start < end)
        else:
            writer.write_tag(spans[index])
    writer.copy_until(len(translation))
    links = []
    for number, (_, sources) in enumerate(writer.words):
        links += [(source, number) for source in sources]
    found = tuple(word for word, _ in writer.words)
    return Restored("".join(writer.pieces), found, tuple(sorted(links)))


def _behind(
    placed: Sequence[tuple[int, int]], copies: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield placed spans, those inside a copy moved to its end."""
    ends = {start: end for start, end, _ in copies}
    starts = sorted(ends)
    for at, index in placed:
        copy = bisect_left(starts, at) - 1
        yield (max(at, ends[starts[copy]]) if copy >= 0 else at), index


class _Writer:
    """The text with its spans, while it is written."""

    def __init__(self, translation: str, spans: Sequence[Span], target: Target) -> None:
        self.translation = translation
        self.pieces = [""]
        self.words: list[tuple[str, set[int]]] = []  # with the source words that each is linked to
        self._target = target
        self._starts = [start for start, _ in target.words]
        self.cursor = 0  # the end of what has been copied from the translation
        self._last_text = 0  # the last piece that is not a tag
        self._drop_space = False  # whether the next space was only added for the model
        self._positional = iter(
            [span for span in spans if span.stand_in and _POSITIONAL.match(span.text)]
        )

    def copy_until(self, end: int) -> None:
        """Copy the translation up to a position."""
        text = self.translation[self.cursor : end]
        for start, stop in words(text):
            number = bisect_right(self._starts, self.cursor + start) - 1
            self.words.append((text[start:stop], self._target.sources[number]))
        if text:
            self.pieces.append(text.removeprefix(" ") if self._drop_space else text)
            self._last_text = len(self.pieces) - 1
            self._drop_space = False

    def drop_last_space(self) -> None:
        """Remove the space before the current position."""
        self.pieces[self._last_text] = self.pieces[self._last_text].removesuffix(" ")

    def write_tag(self, span: Span) -> None:
        """Write a tag, with the spaces that it had in the source if it has no partner."""
        if span.glued[0]:
            self.drop_last_space()
        last = self.pieces[-1]
        before = " " if span.spaced[0] and last and not last[-1].isspace() else ""
        behind = " " if span.spaced[1] and self._next_character().strip() else ""
        self.pieces.append(before + span.text + behind)

    def write_placeholder(self, span: Span, *, was_copied: bool) -> None:
        """Write a placeholder in place of its stand-in, or as a word if that was not copied."""
        if span.glued[0]:
            self.drop_last_space()
        written = next(self._positional) if _POSITIONAL.match(span.text) else span
        text = written.text
        self.words.append((text, {written.word}))
        if not was_copied:
            left = IN_SPACED_WORD.match(self.pieces[-1][-1:]) and not span.glued[0]
            right = IN_SPACED_WORD.match(self._next_character()) and not span.glued[1]
            text = f"{' ' if left else ''}{text}{' ' if right else ''}"
        self.pieces.append(text)
        self._last_text = len(self.pieces) - 1
        # Models often write a space between a stand-in and a comma.
        is_spaced_mark = _SPACED_MARK.match(self.translation, self.cursor)
        self._drop_space = span.glued[1] or bool(is_spaced_mark)

    def _next_character(self) -> str:
        return self.translation[self.cursor : self.cursor + 1]
