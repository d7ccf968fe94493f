"""The texts and tags of an HTML page, as they are in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

# Elements inside a sentence; all others separate sentences.
_INLINE_NAMES = (
    "a abbr acronym b bdi bdo big cite data del dfn em font i img input ins label mark nobr q s "
    "small span strike strong sub sup time tt u wbr"
)
_VOID_NAMES = "area base br col embed hr img input link meta source track wbr"
INLINE = frozenset(_INLINE_NAMES.split())
VOID = frozenset(_VOID_NAMES.split())
# Elements whose content is not translated: some have no text, some are read as a word.
_CLOSED = {"script", "style", "svg", "audio", "video", "canvas", "object", "noscript"}
_WORDS = {"code", "kbd", "samp", "var", "math"}
_BLOCKS = {"pre", "textarea", "template", "iframe"}
_NO_TAGS_INSIDE = {"script", "style", "textarea", "iframe"}
_ATTRIBUTES = {"alt", "title", "placeholder", "aria-label", "label"}
_META = frozenset(
    ("description", "og:title", "og:description", "twitter:title", "twitter:description")
)

# Possessive repetitions (++) do not go back, so matching takes linear time.
_VALUE = r"\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'>][^\s>]*+)"
_MARKUP = re.compile(
    r"<!--(?:.*?-->|.*+)|<%.{0,2000}?%>|<\?.{0,2000}?\?>|</?(?P<name>[A-Za-z][^\s/>]*+)"
    rf"(?:[\s/]++|[^\s\"'>/=]++(?:{_VALUE})?+|[\"'=])*+>|<[!?/][^>]*+>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")


@dataclass(frozen=True)
class Tag:
    """A tag, a comment, or an element that stays closed, as it is in the file."""

    raw: str
    name: str = ""
    is_closing: bool = False
    is_word: bool = False
    attributes: tuple[tuple[int, int], ...] = ()  # the ranges to translate

    def value(self, found: tuple[int, int]) -> str:
        """Return the value of an attribute."""
        return unescape(self.raw[found[0] : found[1]])


def scan(text: str) -> Iterator[str | Tag]:
    """Yield the texts and tags of a page, which together are the page."""
    done = 0
    at = text.find("<")
    while at >= 0:
        found = _MARKUP.match(text, at)
        if found is None and re.match(r"<[A-Za-z/!?]", text[at : at + 2]):
            break  # it never ends: nothing behind it is text
        if found is None:
            at = text.find("<", at + 1)
            continue
        yield text[done:at]
        tag, done = _read_tag(text, found)
        yield tag
        at = text.find("<", done)
    if at >= 0:
        yield text[done:at]
        yield Tag(text[at:])
    else:
        yield text[done:]


def _read_tag(text: str, found: re.Match[str]) -> tuple[Tag, int]:
    """Return a tag, or a closed element with all its content, and where it ends."""
    raw = found[0]
    name = (found["name"] or "").lower()
    if not name or raw.startswith("</"):
        # Templates write values as <%= name %> and <?= $name ?>.
        is_word = raw.startswith(("<%=", "<?="))
        return Tag(raw, name, is_closing=bool(name), is_word=is_word), found.end()
    attributes = {match[1].lower(): match for match in _ATTRIBUTE.finditer(raw, len(name) + 1)}
    is_kept = _is_untranslated(attributes) and name not in VOID
    if name in _CLOSED | _WORDS | _BLOCKS or is_kept:
        end = _end_of_element(text, name, found.end())
        is_inline = name in _CLOSED | _WORDS | INLINE
        is_word = name in _WORDS or (is_kept and is_inline and name not in _CLOSED)
        return Tag(text[found.start() : end], "" if is_inline else name, is_word=is_word), end
    return Tag(raw, name, attributes=_translated_attributes(name, attributes)), found.end()


def _is_untranslated(attributes: dict[str, re.Match[str]]) -> bool:
    classes = _unquoted(attributes.get("class")).split()
    return _unquoted(attributes.get("translate")) == "no" or "notranslate" in classes


def _unquoted(attribute: re.Match[str] | None) -> str:
    if attribute is None:
        return ""
    return attribute[2] or attribute[3] or attribute[4] or ""


def _end_of_element(text: str, name: str, start: int) -> int:
    """Return the end of an element; one that is never closed ends with the page."""
    has_tags = name not in _NO_TAGS_INSIDE
    slash = "/?" if has_tags else "/"
    pattern = re.compile(rf"<({slash}){re.escape(name)}(?=[\s/>])", re.IGNORECASE)
    depth = 1
    # The end of a tag is looked for outside the pattern: if there is none, the search is over.
    while (match := pattern.search(text, start)) and (end := text.find(">", match.end())) >= 0:
        start = end + 1
        is_closing = bool(match[1])
        if not is_closing and text[end - 1] == "/":
            continue
        depth += -1 if is_closing else 1
        if depth == 0:
            return start
    return len(text)


def _translated_attributes(
    name: str, attributes: dict[str, re.Match[str]]
) -> tuple[tuple[int, int], ...]:
    """Return where the values that a person reads are in a tag."""
    chosen = set(_ATTRIBUTES)
    described = _unquoted(attributes.get("name")) or _unquoted(attributes.get("property"))
    if name == "meta" and described.lower() in _META:
        chosen.add("content")
    if name == "input" and _unquoted(attributes.get("type")).lower() in ("submit", "button"):
        chosen.add("value")
    ranges = []
    for attribute in chosen & attributes.keys():
        match = attributes[attribute]
        group = 2 if match[2] is not None else 3
        if match[group] and any(map(str.isalnum, match[group])):
            ranges.append(match.span(group))
    return tuple(sorted(ranges))
