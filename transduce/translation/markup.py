"""Markup and placeholders survive translation by any model, also one that never saw them.

Tags (`<b>`) leave the text before it is translated; placeholders, addresses and entities (`%1$s`, `{name}`, URLs) are
replaced by a short word that models copy. Afterwards each is put back exactly once, where the word alignment says, and
what was balanced stays balanced: tags are placed as a tree of word ranges, each within its parent's. Where the
alignment is wrong, or a stand-in was not copied, the place may be some words off.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.translation.tag_tree import (
    IN_SPACED_WORD,
    Alignment,
    Range,
    Span,
    Target,
    place,
    words,
)

# In an address, no quotation marks, and no full stop or comma as Chinese and Japanese write them.
_IN_URL = r"[^\s<>\"()\u00ab\u00bb\u2018-\u201f\u3001-\u303f\uff01-\uff0f\uff1a-\uff20]"
_IN_BRACES = r"[^{}]*+"
for _ in range(5):  # braces within braces
    _IN_BRACES = rf"(?:[^{{}}]|\{{{_IN_BRACES}\}})*+"
# Every repetition is bounded or ends at the next possible start: no text takes more than linear time.
_PROTECTED = re.compile(
    r"(?P<tag><!--(?:(?!<!--).)*?-->|</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>)"
    rf"|(?<![A-Za-z0-9])(?:(?:https?|ftp)://|www\.)(?:{_IN_URL}|\({_IN_URL}*\))+(?<![.,;:!?'*_])"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
    r"|\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{ {0,4}[^{}\s]* {0,4}\}|(?<![\w$])\$[A-Za-z_]\w{0,63}"
    # ICU's messages, with messages in them: {n, plural, one {# file} other {# files}}.
    r"|\{\s{0,4}\w{1,64}\s{0,4},\s{0,4}(?:plural|select|selectordinal|number|date|time|spellout|ordinal|duration)\b"
    rf"{_IN_BRACES}\}}"
    r"|%%|%(?:\d{1,3}\$|\(\w{1,64}\))?[-+#0']{0,4}(?:\d{1,4}|\*)?(?:\.\d{1,4})?(?:hh?|ll?|[Lqjzt])?"
    r"[diouxXeEfFgGaAcspn@](?![A-Za-z])"
    r"|&(?:\#\d{1,7}|\#x[0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,31});",
    re.DOTALL,
)
_SPACES = re.compile(r"\s{2,}")
_TAG_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*)")
# Filled in order and not by name: their order must stay.
_POSITIONAL = re.compile(r"%(?!%|\d+\$|\()|\{\}$")


@dataclass(frozen=True)
class Protected:
    """A text as the model is to see it, and what is kept from the model."""

    plain: str
    spans: tuple[Span, ...] = ()

    @property
    def has_text(self) -> bool:
        """Whether anything is left to translate."""
        kept = {span.stand_in for span in self.spans}
        found = (self.plain[start:end] for start, end in words(self.plain))
        return any(any(map(str.isalnum, word)) for word in found if word not in kept)

    def words(self, text: str) -> tuple[str, ...]:
        """The words of the plain text or of its translation, each stand-in as what it stands for."""
        kept = {span.stand_in: span.text for span in self.spans}
        return tuple(kept.get(text[start:end], text[start:end]) for start, end in words(text))


def find(text: str) -> list[Range]:
    """Start and end of everything that `protect` keeps."""
    return [match.span() for match in _PROTECTED.finditer(text)]


def protect(text: str) -> Protected:
    """Take the tags out of a text, and put a stand-in for everything else that must stay as it is."""
    found = list(_PROTECTED.finditer(text))
    partners = _pairs([match["tag"] for match in found])
    name, numbers, plain, end, apart = _unused_name(text), itertools.count(1), "", 0, False
    offsets, stand_ins, added = (
        [],
        [],
        set(),
    )  # `added`: the spaces that keep stand-ins from their neighbours

    def add(piece: str, keep_apart: bool) -> str:
        # Two of them, also where a tag was between, are more than a model has learnt.
        piece = _SPACES.sub(" ", piece)
        if not plain or plain[-1].isspace():
            piece = piece.lstrip()
        if keep_apart and IN_SPACED_WORD.match(plain[-1:]) and IN_SPACED_WORD.match(piece):
            added.add(len(plain))
            return f"{plain} {piece}"
        return plain + piece

    for match, partner in zip(found, partners, strict=True):
        if between := text[end : match.start()]:
            plain, apart = add(between, apart), False
        end = match.end()
        stand_ins.append("" if match["tag"] else f"{name}{next(numbers)}")
        if match["tag"]:
            apart = apart or partner < 0  # a lone tag, such as <br>, keeps words apart
        else:
            plain, apart = add(stand_ins[-1], True), True
        offsets.append(len(plain) - len(stand_ins[-1]))
    plain = add(text[end:], apart).rstrip()

    starts, ends = zip(*words(plain), strict=True) if plain.strip() else ((), ())
    spans = []
    for match, offset, partner, stand_in in zip(found, offsets, partners, stand_ins, strict=True):
        word = bisect_right(ends, offset)
        last = bisect_left(starts, offsets[partner]) if partner >= 0 else word
        left, right = offset - 1 in added, offset + len(stand_in) in added
        glued = (left, right) if stand_in else (partner < 0 and right, False)
        alone = partner < 0 and not stand_in
        around = (
            text[match.start() - 1 : match.start()].isspace(),
            text[match.end() : match.end() + 1].isspace(),
        )
        spans.append(
            Span(
                match[0],
                word,
                max(word, last),
                partner,
                stand_in,
                glued,
                around if alone else (False, False),
            )
        )
    return Protected(plain, tuple(spans))


def _pairs(tags: Sequence[str | None]) -> list[int]:
    """The partner of each tag, or -1. Pairs never cross: of `<b><i></b></i>` only the outer `<b>` has one."""
    partners, opened, counts = [-1] * len(tags), list[tuple[str, int]](), Counter[str]()
    for index, tag in enumerate(tags):
        named = _TAG_NAME.match(tag or "")
        if not named or (tag or "").endswith("/>"):
            continue
        name = named[2].lower()
        if not named[1]:
            opened.append((name, index))
            counts[name] += 1
        elif counts[name]:
            while opened[-1][0] != name:
                counts[opened.pop()[0]] -= 1
            partners[index] = opened.pop()[1]
            partners[partners[index]] = index
            counts[name] -= 1
    return partners


def _unused_name(text: str) -> str:
    """Letters that no number follows in this text, so that with a number they are found again."""
    for length in itertools.count(1):
        for letters in itertools.product("XQZ", repeat=length):
            name = "".join(letters)
            if not re.search(f"{name} ?[0-9]", text, re.IGNORECASE):
                return name
    raise AssertionError


def restore(translation: str, protected: Protected, alignment: Alignment = ()) -> str:
    """Put every span back into the translation of the plain text, exactly once, by the alignment of its words.

    Without links it is the relative place in the sentence that counts; links to words that do not exist are ignored.
    """
    spans = protected.spans
    if not spans:
        return translation
    copies = _find_stand_ins(translation, protected)
    sure = [((start, end), spans[index].word) for start, end, index in copies if index >= 0]
    target = Target(translation, len(words(protected.plain)), alignment, sure)
    lost = set(range(len(spans))) - {index for _, _, index in copies}
    return _write(translation, spans, copies, place(spans, lost, target))


def _find_stand_ins(translation: str, protected: Protected) -> list[tuple[int, int, int]]:
    """Where stand-ins were copied to: (start, end, span), with -1 for a second copy or a made-up one, which goes."""
    known = {span.stand_in: index for index, span in enumerate(protected.spans) if span.stand_in}
    if not known:
        return []
    name, copies, seen = next(iter(known)).rstrip("0123456789"), [], set()
    for match in re.finditer(
        f"(?:(?<![0-9A-Za-z]){name} ?|(?-i:{name}))([0-9]+)", translation, re.IGNORECASE
    ):
        exact, end = match[0] == f"{name}{match[1]}", len(match[1])
        while exact and end > 1 and f"{name}{match[1][:end]}" not in known:
            end -= 1  # a digit may have been joined to it
        index = known.get(f"{name}{match[1][:end]}", -1 if exact else None)
        if index is not None:
            stop = match.end() - (len(match[1]) - end if index >= 0 else 0)
            copies.append((match.start(), stop, -1 if index in seen else index))
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
    """What is left of stand-ins of which only the number, or only the letters, were copied."""
    taken = {place for start, end, _ in copies for place in range(start, end)}
    source = protected.words(protected.plain)  # without stand-ins
    found = [
        ((start, end), translation[start:end])
        for start, end in words(translation)
        if start not in taken
    ]
    numbers = {protected.spans[index].stand_in.removeprefix(name): index for index in lost}
    halves = []
    for (start, end), word in found:
        if word in numbers and word not in source:
            halves.append((start, end, numbers.pop(word)))
    left = iter(numbers.values())
    return halves + [
        (*place, next(left, -1)) for place, word in found if word == name and word not in source
    ]


def _write(
    translation: str,
    spans: Sequence[Span],
    copies: Sequence[tuple[int, int, int]],
    placed: Sequence[tuple[int, int]],
) -> str:
    """The translation with the copied stand-ins replaced and the placed spans inserted."""
    positional = iter(
        [span.text for span in spans if span.stand_in and _POSITIONAL.match(span.text)]
    )
    # In the order of writing: (start, end, span). What is placed inside a copy comes behind it.
    ends = {start: end for start, end, _ in copies}
    starts = sorted(ends)

    def shifted(at: int) -> int:
        copy = bisect_left(starts, at) - 1
        return max(at, ends[starts[copy]]) if copy >= 0 else at

    insertions = [(shifted(at), shifted(at), index) for at, index in placed]
    pieces, cursor, text = [""], 0, 0  # `text`: the last piece that is no tag
    drop_space = False
    # Insertions first.
    for start, end, index in sorted([*insertions, *copies], key=lambda item: item[0]):
        between = translation[cursor:start]
        if between:
            pieces.append(between.removeprefix(" ") if drop_space else between)
            text, drop_space = len(pieces) - 1, False
        cursor = end
        span = spans[index] if index >= 0 else None
        if span is None or span.glued[0]:
            pieces[text] = pieces[text].removesuffix(" ")
        if span is None:
            continue
        if not span.stand_in:
            before = " " if span.spaced[0] and pieces[-1] and not pieces[-1][-1].isspace() else ""
            behind = " " if span.spaced[1] and translation[end : end + 1].strip() else ""
            pieces.append(before + span.text + behind)
            continue
        kept = next(positional) if _POSITIONAL.match(span.text) else span.text
        if start == end:  # its stand-in was lost: it is a word of its own
            left = IN_SPACED_WORD.match(pieces[-1][-1:]) and not span.glued[0]
            right = IN_SPACED_WORD.match(translation[end : end + 1]) and not span.glued[1]
            kept = f"{' ' if left else ''}{kept}{' ' if right else ''}"
        pieces.append(kept)
        text, drop_space = len(pieces) - 1, span.glued[1]
    return "".join(pieces) + (
        translation[cursor:].removeprefix(" ") if drop_space else translation[cursor:]
    )
