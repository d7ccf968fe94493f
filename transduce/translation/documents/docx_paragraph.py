"""A paragraph of a Word document as tokens, and back.

Word splits a paragraph into runs, each with its format. The format of most of the text is that of
the paragraph; runs with another format become tags, and neighbours with the same one are joined.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import require
from transduce.translation.documents.tags import Kind, Mark, Token
from transduce.translation.documents.xml_content import XML, Element, local_name, valid_text

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_CHARACTERS = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}noBreakHyphen": "\u2011"}
_ELEMENTS = {"\t": f"{WORD}tab", "\n": f"{WORD}br"}
_CONTAINERS = {"hyperlink", "ins", "moveTo", "smartTag", "customXml", "fldSimple", "sdt"}
_PROPERTIES = {"pPr", "smartTagPr", "customXmlPr"}
_WORDS = {"oMath", "oMathPara"}
# What Word finds again by itself, and hyphens for other words.
_NOT_KEPT = {"proofErr", "lastRenderedPageBreak", "softHyphen"}
_UNSEEN = {f"{WORD}lang", f"{WORD}noProof"}  # formats that no reader sees


@dataclass(frozen=True)
class _Format:
    """The format of a run. Two formats with the same key look the same."""

    key: bytes
    element: Element | None


@dataclass(frozen=True)
class _Markup:
    """What a mark stands for."""

    elements: tuple[Element, ...] = ()  # that are kept, before an opening mark or at a single one
    closing: tuple[Element, ...] = ()  # that are kept behind the closing mark
    format: _Format | None = None  # of the text between the marks, or of a single element
    container: Element | None = None  # the element around the text between the marks


class Paragraph:
    """A paragraph: its tokens, and what the marks among them stand for."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self.tokens: list[Token] = []
        self._markup: list[_Markup] = []
        self._format = _main_format(element)
        self._read(list(element), self._format)

    def _read(self, children: Sequence[Element], main: _Format) -> None:
        """Add the content of the paragraph, or of an element in it."""
        fields = _find_fields(children)
        place = 0
        while place < len(children):
            child = children[place]
            name = local_name(child)
            if place in fields:
                self._read_field(children[place : fields[place]], main)
                place = fields[place]
                continue
            if name == "r":
                self._read_run(child, main)
            elif name in _CONTAINERS:
                inner = _inner(child)
                self._add_pair(inner, _Markup(container=child, format=_main_format(inner)))
            elif name not in _PROPERTIES | _NOT_KEPT:
                kind = Kind.WORD if name in _WORDS else Kind.SINGLE
                self._add(kind, _Markup((child,)))
            place += 1

    def _read_run(self, run: Element, main: _Format) -> None:
        """Add the text of a run; everything else in it becomes a run of its own."""
        run_format = _format_of(run)
        text = ""
        for child in run:
            name = local_name(child)
            if child.tag in _CHARACTERS and not child.attrib:
                text += _CHARACTERS[child.tag]
            elif name == "t":
                text += child.text or ""
            elif name not in _NOT_KEPT | {"rPr"}:
                self._add_text(text, run_format, main)
                text = ""
                self._add(Kind.SINGLE, _Markup((child,), format=run_format))
        self._add_text(text, run_format, main)

    def _add_text(self, text: str, run_format: _Format, main: _Format) -> None:
        last = self.tokens[-1] if self.tokens else ""
        if not text:
            return
        if run_format.key == main.key or not text.strip():
            self.tokens.append(text)
        elif isinstance(last, Mark) and self._closes(last, run_format):
            self.tokens[-1:] = [text, last]
        else:
            number = self._new(_Markup(format=run_format))
            self.tokens += [Mark(Kind.OPEN, number), text, Mark(Kind.CLOSE, number)]

    def _closes(self, mark: Mark, run_format: _Format) -> bool:
        """Return whether a mark ends text of this format."""
        markup = self._markup[mark.number]
        is_text = mark.kind is Kind.CLOSE and markup.container is None and not markup.closing
        return is_text and markup.format is not None and markup.format.key == run_format.key

    def _read_field(self, runs: Sequence[Element], main: _Format) -> None:
        """Add a field. The text of a link is translated, the result of any other field is not."""
        instruction = "".join("".join(run.itertext(f"{WORD}instrText")) for run in runs)
        kinds = [_field_character(run) for run in runs]
        if instruction.split()[:1] == ["HYPERLINK"] and kinds.count("separate") == 1:
            start = kinds.index("separate") + 1
            number = self._new(_Markup(tuple(runs[:start]), tuple(runs[-1:])))
            self.tokens.append(Mark(Kind.OPEN, number))
            self._read(runs[start:-1], main)
            self.tokens.append(Mark(Kind.CLOSE, number))
        else:
            self._add(Kind.WORD, _Markup(tuple(runs)))

    def _add_pair(self, inner: Element, markup: _Markup) -> None:
        number = self._new(markup)
        self.tokens.append(Mark(Kind.OPEN, number))
        assert markup.format is not None
        self._read(list(inner), markup.format)
        self.tokens.append(Mark(Kind.CLOSE, number))

    def _add(self, kind: Kind, markup: _Markup) -> None:
        self.tokens.append(Mark(kind, self._new(markup)))

    def _new(self, markup: _Markup) -> int:
        self._markup.append(markup)
        return len(self._markup) - 1

    def write(self, tokens: Sequence[Token]) -> None:
        """Fill the paragraph with these tokens, instead of what it contained."""
        _empty(self.element)
        parents = [(self.element, self._format)]
        for token in tokens:
            parent, text_format = parents[-1]
            if isinstance(token, str):
                _write_text(parent, text_format, token)
                continue
            markup = self._markup[token.number]
            if token.kind is Kind.CLOSE:
                parents.pop()
                parents[-1][0].extend(markup.closing)
                continue
            for element in markup.elements:
                _write_element(parent, element, markup)
            if token.kind is Kind.OPEN:
                if markup.container is not None:
                    parent.append(markup.container)
                    parent = _inner(markup.container)
                    _empty(parent)
                parents.append((parent, markup.format or text_format))


def _inner(container: Element) -> Element:
    """Return the element that has the runs of a container."""
    inner = container.find(f"{WORD}sdtContent")
    return container if inner is None else inner


def _empty(element: Element) -> None:
    for child in list(element):
        if local_name(child) not in _PROPERTIES:
            element.remove(child)


def _write_text(parent: Element, text_format: _Format, text: str) -> None:
    """Append a run with a text to a paragraph."""
    etree = require("lxml.etree", extra="documents")
    run = _new_run(parent, text_format)
    rest = text
    while rest:
        length = min((rest.find(mark) for mark in _ELEMENTS if mark in rest), default=len(rest))
        if length:
            part = etree.SubElement(run, f"{WORD}t", {f"{XML}space": "preserve"})
            part.text = valid_text(rest[:length])
        if length < len(rest):
            etree.SubElement(run, _ELEMENTS[rest[length]])
        rest = rest[length + 1 :]


def _write_element(parent: Element, element: Element, markup: _Markup) -> None:
    """Append an element, inside a run of its format if it was in a run."""
    is_in_run = markup.format is not None and markup.container is None
    if is_in_run and markup.format is not None:
        parent = _new_run(parent, markup.format)
    parent.append(element)


def _new_run(parent: Element, run_format: _Format) -> Element:
    etree = require("lxml.etree", extra="documents")
    run = etree.SubElement(parent, f"{WORD}r")
    if run_format.element is not None:
        run.append(copy.deepcopy(run_format.element))
    return run


def _format_of(run: Element) -> _Format:
    etree = require("lxml.etree", extra="documents")
    element = run.find(f"{WORD}rPr")
    if element is None:
        return _Format(b"", None)
    seen = [child for child in element if child.tag not in _UNSEEN]
    key = b"".join(etree.tostring(child, method="c14n", with_tail=False) for child in seen)
    return _Format(key, element)


def _main_format(parent: Element) -> _Format:
    """Return the format of most of the text directly in an element."""
    counts: Counter[bytes] = Counter()
    formats: dict[bytes, _Format] = {}
    for run in parent.iterchildren(f"{WORD}r"):
        found = _format_of(run)
        formats.setdefault(found.key, found)
        counts[found.key] += sum(len(text.text or "") for text in run.iterchildren(f"{WORD}t"))
    return formats[counts.most_common(1)[0][0]] if counts else _Format(b"", None)


def _field_character(run: Element) -> str:
    """Return which end of a field a run is: begin, separate, end; or nothing."""
    found = [child.get(f"{WORD}fldCharType", "") for child in run.iterchildren(f"{WORD}fldChar")]
    return found[0] if len(found) == 1 else ""


def _find_fields(children: Sequence[Element]) -> dict[int, int]:
    """Return where each field begins and ends among these elements."""
    fields: dict[int, int] = {}
    begun: list[int] = []
    for place, child in enumerate(children):
        kind = _field_character(child)
        if kind == "begin":
            begun.append(place)
        elif kind == "end" and begun:
            fields[begun.pop()] = place + 1
    return fields
