"""Markup and placeholders, which any model translates correctly, even if it never saw them.

Tags (`<b>`) are removed before translation. Placeholders, addresses and entities (`%1$s`, `{name}`,
URLs) are replaced by stand-ins: short words that models copy. Afterwards `restore` puts each back.
"""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import InputError
from transduce.translation.markup_patterns import LONG, MARKUP, PROTECTED, may_match
from transduce.translation.tag_tree import IN_SPACED_WORD, Span, words

_UNUSUAL_SPACES = re.compile(r"[^\S ]")  # hard spaces, and ends of lines within a sentence
# Characters that nobody sees: zero-width spaces, soft hyphens and byte-order marks.
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_SPACES = re.compile(r"\s{2,}")
_TOGGLES = ("**", "~~")
_TAG_NAME = re.compile(r"</?(\w[\w:.-]*)")


@dataclass(frozen=True)
class Protected:
    """A text without markup, and the spans that were taken out."""

    plain: str
    spans: tuple[Span, ...] = ()
    has_terms: bool = False  # whether terms of a glossary are among the spans
    lower_case: str | None = None  # what the model reads instead, if the text is in capitals

    @property
    def read(self) -> str:
        """The text that the model reads."""
        return self.lower_case or self.plain

    @property
    def has_text(self) -> bool:
        """Whether the text has anything to translate."""
        if not self.spans:
            return any(map(str.isalnum, self.plain))
        stand_ins = {span.stand_in for span in self.spans}
        for start, end in words(self.plain):
            word = self.plain[start:end]
            if word not in stand_ins and any(map(str.isalnum, word)):
                return True
        return False

    def words(self) -> tuple[str, ...]:
        """Return the words of the plain text, with what stood in the source for stand-ins."""
        originals = {span.stand_in: span.source for span in self.spans}
        found = [self.plain[start:end] for start, end in words(self.plain)]
        return tuple(originals.get(word, word) for word in found)


class Glossary:
    """Terms with fixed translations. A term matches whole words, as they are spelled.

    Spaces at the ends, such as those of a table, do not count.
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms: dict[str, str] = {}
        for term, translation in terms.items():
            if not (isinstance(term, str) and term.strip() and isinstance(translation, str)):
                raise InputError(
                    f"the glossary has the entry {term!r}: {translation!r}; expected a term that "
                    "is not empty, and its translation"
                )
            first = self.terms.setdefault(term.strip(), translation.strip())
            if first != translation.strip():
                raise InputError(
                    f"the glossary translates {term.strip()!r} as {first!r} and as "
                    f"{translation.strip()!r}; expected one translation, since spaces at the ends "
                    "of a term do not count"
                )
        # The longest first: "data centre" before "data".
        longest_first = sorted(self.terms, key=len, reverse=True)
        choices = "|".join(map(re.escape, longest_first))
        term = rf"(?P<term>(?<!\w)(?:{choices})(?!\w))"
        self.pattern = re.compile(f"{LONG}|{term}|{MARKUP}", re.DOTALL)


def protect(text: str, glossary: Glossary | None = None, unknown: str = "") -> Protected:
    """Remove the tags from a text, and replace everything else that must stay by stand-ins.

    Terms of a glossary are replaced too, and restored as their translations. `unknown` are
    characters that the model has never seen: words of them are copied.
    """
    if not (glossary or unknown or may_match(text)):
        return Protected(_visible(text).strip())
    pattern = glossary.pattern if glossary else PROTECTED
    if unknown:
        pattern = _with_unknown(pattern.pattern, unknown)
    matches = list(pattern.finditer(text))
    partners = _pairs([match["tag"] for match in matches])
    plain = _plain_text(text, matches, partners)

    # Describe each span by the words around it.
    ranges = words(plain.text)
    starts = [start for start, _ in ranges]
    ends = [end for _, end in ranges]
    spans = []
    is_term = [bool(glossary and match["term"]) for match in matches]
    for index, match in enumerate(matches):
        offset, stand_in = plain.places[index]
        partner = partners[index]
        word = bisect_right(ends, offset)
        last = bisect_left(starts, plain.places[partner][0]) if partner >= 0 else word
        is_in_word = partner >= 0 and word < len(ranges)
        is_single_tag = partner < 0 and not stand_in
        spaced, follows = _spacing(text, match) if is_single_tag else ((False, False), False)
        space_follows = offset + len(stand_in) in plain.added_spaces
        glued = (False, False)
        if stand_in:
            glued = (offset - 1 in plain.added_spaces, space_follows)
        elif is_single_tag:
            glued = (space_follows, False)
        span = Span(
            text=glossary.terms[match[0]] if glossary and is_term[index] else match[0],
            source=match[0],
            word=word,
            end=max(word, last),
            partner=partner,
            stand_in=stand_in,
            glued=glued,
            spaced=spaced,
            follows=follows,
            inside=max(0, offset - starts[word]) if is_in_word else 0,
            is_long_word=bool(match["long_word"]),
        )
        spans.append(span)
    return Protected(plain.text, tuple(spans), any(is_term))


def _plain_text(text: str, matches: Sequence[re.Match[str]], partners: list[int]) -> _PlainText:
    """Return a text without its tags, and with stand-ins for everything else that matches."""
    plain = _PlainText()
    name = _unused_name(text)
    numbers = itertools.count(1)
    end = 0  # of the last match
    for match, partner in zip(matches, partners, strict=True):
        plain.add(text[end : match.start()])
        end = match.end()
        if match["tag"]:
            # A tag without a partner, such as <br>, keeps words apart.
            plain.leave_out_tag(keeps_apart=partner < 0)
        else:
            plain.add_stand_in(f"{name}{next(numbers)}")
    plain.add(text[end:])
    plain.text = plain.text.rstrip()
    return plain


def _spacing(text: str, tag: re.Match[str]) -> tuple[tuple[bool, bool], bool]:
    """Return whether a tag has spaces on its left and right, and whether it follows a word."""
    before = text[max(0, tag.start() - 1) : tag.start()]
    after = text[tag.end() : tag.end() + 1]
    follows = after.isspace() and bool(before.strip())
    return (before.isspace(), after.isspace() and not follows), follows


@functools.lru_cache(maxsize=64)
def _with_unknown(pattern: str, characters: str) -> re.Pattern[str]:
    """Return the pattern that also finds runs of characters, with what joins and modifies them."""
    run = f"[{re.escape(characters)}]"
    return re.compile(rf"{pattern}|{run}(?:[ \u200c\u200d\ufe0f]*{run})*\ufe0f?", re.DOTALL)


def as_searched(prefix: str, source: Protected) -> str:
    """Return the beginning of a translation as the model writes it.

    Its tags and placeholders are those of the source: tags are put back in any case, and what has
    a stand-in in the source is written as that.
    """
    for span in source.spans:
        if span.stand_in:
            prefix = prefix.replace(span.text, span.stand_in, 1)
    return PROTECTED.sub(lambda match: "" if match["tag"] else match[0], prefix)


class _PlainText:
    """The text that the model sees, while it is built."""

    def __init__(self) -> None:
        self.text = ""
        self.keep_apart = False  # whether the next part must not form a word with the last one
        self.added_spaces: set[int] = set()  # positions of spaces that keep stand-ins apart
        self.places: list[tuple[int, str]] = []  # where each span is, and its stand-in

    def add(self, part: str) -> None:
        """Append a part of the source."""
        if part:
            self._append(part)
            self.keep_apart = False

    def leave_out_tag(self, *, keeps_apart: bool) -> None:
        """Note the place of a tag."""
        self.keep_apart = self.keep_apart or keeps_apart
        self.places.append((len(self.text), ""))

    def add_stand_in(self, stand_in: str) -> None:
        """Append a stand-in, apart from both neighbours."""
        self.keep_apart = True
        self._append(stand_in)
        self.keep_apart = True
        self.places.append((len(self.text) - len(stand_in), stand_in))

    def _append(self, part: str) -> None:
        part = _visible(part)
        if not self.text or self.text[-1].isspace():
            part = part.lstrip()
        joins = IN_SPACED_WORD.match(self.text[-1:]) and IN_SPACED_WORD.match(part)
        if self.keep_apart and joins:
            self.added_spaces.add(len(self.text))
            self.text += " "
        self.text += part


def _visible(text: str) -> str:
    """Return a text without what models have not learned.

    That is what nobody sees, unusual spaces, and two in a row, which a removed tag may leave.
    """
    return _SPACES.sub(" ", _UNUSUAL_SPACES.sub(" ", _INVISIBLE.sub("", text)))


def _pairs(tags: Sequence[str | None]) -> list[int]:
    """Return the index of each tag's partner, or -1.

    Pairs never cross: in `<b><i></b></i>` only `<b>` has a partner.
    """
    partners = [-1] * len(tags)
    opened: list[tuple[str, int]] = []
    counts: Counter[str] = Counter()  # of each name in `opened`
    for index, tag in enumerate(tags):
        if tag is None:
            continue
        name = _pair_name(tag)
        if not name:
            continue
        # In Markdown the same sign opens and closes.
        is_closing = counts[name] > 0 if name in _TOGGLES else tag.startswith("</")
        if not is_closing:
            opened.append((name, index))
            counts[name] += 1
        elif counts[name]:
            # Tags that were opened in between stay without a partner.
            while opened[-1][0] != name:
                unclosed, _ = opened.pop()
                counts[unclosed] -= 1
            _, opening = opened.pop()
            partners[index] = opening
            partners[opening] = index
            counts[name] -= 1
    return partners


def _pair_name(tag: str) -> str:
    """Return what the two tags of a pair have in common; nothing for a tag without a partner."""
    if tag in _TOGGLES:
        return tag
    named = _TAG_NAME.match(tag)
    if not named or tag.endswith("/>"):
        return ""
    return named[1].lower()


def _unused_name(text: str) -> str:
    """Return letters that no number follows in this text, so that stand-ins are unambiguous."""
    for length in itertools.count(1):
        for letters in itertools.product("XQZ", repeat=length):
            name = "".join(letters)
            if not re.search(f"{name} ?[0-9]", text, re.IGNORECASE):
                return name
    raise AssertionError
