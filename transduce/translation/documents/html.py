"""HTML pages: text and some attributes are translated, every other character stays as it is.

The language that the page declares (`<html lang="en">`) becomes the target language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape

from transduce.data.readers.columns import is_language
from transduce.translation.documents.html_tags import INLINE, VOID, Tag, scan
from transduce.translation.documents.job import Job
from transduce.translation.documents.tags import Kind, Mark, Segment, Token, segment
from transduce.translation.documents.text_encoding import decode, nameable

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_LANGUAGE = re.compile(r"(\s(?:xml:)?lang\s*=\s*[\"']?)([A-Za-z]{2,3}(?:-\w{1,8})*)(?![\w-])", re.I)
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,31});")

_NO_TEXT = Segment((), (), (), "x")


@dataclass(frozen=True)
class _Piece:
    """Text and inline markup between two block elements."""

    raw: tuple[str | Tag, ...]
    segment: Segment
    tags: tuple[Tag, ...]  # by the numbers of their marks; a closing tag follows its opening tag
    closings: dict[int, Tag]


def translate_html(job: Job) -> bytes:
    """Translate a page."""
    job.check_tags(job.data)
    text, encoding = decode(job.data, job.name, _declared_encoding(job.data))
    pieces = [_piece(run) for run in _runs(scan(text))]

    # Translate all texts and all attributes together.
    tags = [part for piece in pieces for part in piece.raw if isinstance(part, Tag)]
    values = [tag.value(found) for tag in tags for found in tag.attributes]
    texts = [piece.segment.text for piece in pieces if piece.segment.has_words]
    translations = iter(job.translate([*texts, *values]))
    new_texts = [
        next(translations) if piece.segment.has_words else piece.segment.text for piece in pieces
    ]
    new_tags = {}
    for tag in tags:
        new_tag = _with_attributes(tag, translations)
        new_tags[id(tag)] = _with_language(new_tag, job) if tag.name == "html" else new_tag

    # Write the page.
    written = []
    for piece, translation in zip(pieces, new_texts, strict=True):
        if translation == piece.segment.text:
            written += [part if isinstance(part, str) else new_tags[id(part)] for part in piece.raw]
            continue
        for token in piece.segment.replaced(translation):
            if isinstance(token, str):
                written.append(escape(token, quote=False).replace("\u00a0", "&nbsp;"))
            elif token.kind is Kind.CLOSE:
                written.append(new_tags[id(piece.closings[token.number])])
            else:
                written.append(new_tags[id(piece.tags[token.number])])
    return encoding.encode("".join(written), errors="xmlcharrefreplace")


def without_references(page: str) -> str:
    """Return HTML or XML with letters, accents and quotation marks as themselves: no &eacute;.

    In the middle of a word, a model cannot read a placeholder. References to signs that may be
    markup, such as &lt; and &#123;, and to spaces stay.
    """
    return "".join(
        part.raw if isinstance(part, Tag) else _REFERENCE.sub(_character, part)
        for part in scan(page)
    )


def _character(reference: re.Match[str]) -> str:
    text = unescape(reference[0])
    for character in text:
        is_visible = character.isprintable() and not character.isascii()
        if not (is_visible or character.isalnum() or character in "'\""):
            return reference[0]
    return text


def _declared_encoding(data: bytes) -> str:
    """Return the encoding that a page declares, or else the one that its bytes suggest."""
    declared = _CHARSET.search(data[:4096])
    # A page that says UTF-16 is none, for that would have a mark at its start.
    name = (nameable(declared[1].decode()) if declared else None) or "utf-8"
    try:
        data.decode(name)
    except UnicodeDecodeError:
        return "utf-8" if declared else "cp1252"  # as browsers do
    return "cp1252" if name == "iso8859-1" else name


def _with_attributes(tag: Tag, translations: Iterator[str]) -> str:
    """Return the tag with its attributes translated."""
    written = []
    done = 0
    for start, end in tag.attributes:
        new = next(translations)
        written.append(tag.raw[done:start])
        is_same = new == tag.value((start, end))
        written.append(tag.raw[start:end] if is_same else escape(new))
        done = end
    return "".join([*written, tag.raw[done:]])


def _with_language(tag: str, job: Job) -> str:
    """Return the tag of a page in the source language as that of a page in the target language.

    Without a source, it was detected: it is the one that the page declares.
    """
    source, target = job.languages

    def translated(attribute: re.Match[str]) -> str:
        beginning, language = attribute.groups()
        is_source = not source or is_language(language, source)
        return f"{beginning}{target}" if is_source else attribute[0]

    return _LANGUAGE.sub(translated, tag) if target else tag


def _runs(parts: Iterator[str | Tag]) -> Iterator[list[str | Tag]]:
    """Yield the parts between block elements, and each block's tag alone."""
    run: list[str | Tag] = []
    for part in parts:
        if isinstance(part, Tag) and part.name and part.name not in INLINE:
            if run:
                yield run
            yield [part]
            run = []
        elif part:
            run.append(part)
    yield run


def _piece(run: Sequence[str | Tag]) -> _Piece:
    """Return a run as tokens: tags that belong together are pairs, all others are single."""
    if not any(isinstance(part, str) for part in run):
        return _Piece(tuple(run), _NO_TEXT, (), {})
    tokens: list[Token] = []
    tags: list[Tag] = []
    closings: dict[int, Tag] = {}
    opened: list[tuple[str, int, int]] = []  # the name, the number, and the place among the tokens
    counts: Counter[str] = Counter()  # of each name in `opened`
    for part in run:
        if isinstance(part, str):
            tokens.append(unescape(part))
            continue
        if part.is_closing and counts[part.name]:
            # Tags that were opened in between stay single.
            while opened[-1][0] != part.name:
                counts[opened.pop()[0]] -= 1
            name, number, place = opened.pop()
            counts[name] -= 1
            tokens[place] = Mark(Kind.OPEN, number)
            tokens.append(Mark(Kind.CLOSE, number))
            closings[number] = part
            continue
        number = len(tags)
        tags.append(part)
        if part.name and not part.is_closing and part.name not in VOID:
            opened.append((part.name, number, len(tokens)))
            counts[part.name] += 1
        tokens.append(Mark(Kind.WORD if part.is_word else Kind.SINGLE, number))
    return _Piece(tuple(run), segment(tokens, collapses_space=True), tuple(tags), closings)
