"""XML files that are read safely, and elements with text and inline elements as tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from transduce.errors import InputError, require
from transduce.translation.documents.tags import Kind, Mark, Token

Element = Any  # of lxml, which has no types
XML = "{http://www.w3.org/XML/1998/namespace}"
_SPACES = re.compile(r"[ \t\r\n]+")
_INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?(?:<\?xml[^>]*\?>\s*)?")


def parse_xml(data: bytes, name: str) -> Element:
    """Return the tree of an XML file. Nothing outside it is loaded, and no entity is expanded."""
    etree = require("lxml.etree", extra="documents")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, strip_cdata=False
    )
    try:
        tree = etree.fromstring(data, parser).getroottree()
    except (etree.XMLSyntaxError, ValueError) as error:
        reason = str(getattr(error, "msg", error)).partition("\n")[0]
        raise InputError(f"{name} is damaged: it is not well-formed XML ({reason})") from None
    declared = tree.docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise InputError(f"{name} declares XML entities, which may be harmful; replace them first")
    return tree


def xml_bytes(tree: Element, source: bytes) -> bytes:
    """Return the tree as a file with the encoding, the line ends and the start of its source."""
    etree = require("lxml.etree", extra="documents")
    if source.startswith((b"\xff\xfe", b"\xfe\xff")):
        wide: bytes = etree.tostring(tree, encoding="UTF-16", xml_declaration=True)
        return wide
    encoding = tree.docinfo.encoding or "UTF-8"
    data: bytes = etree.tostring(tree, encoding=encoding, xml_declaration=False)
    # The parser makes every line end a \n.
    data = data.rstrip(b"\n") + (b"\n" if source.endswith(b"\n") else b"")
    if b"\r\n" in source:
        data = data.replace(b"\n", b"\r\n")
    start = _DECLARATION.match(source)
    return (start[0] if start else b"") + data


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace; empty for a comment."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def insert_behind(element: Element, new: Element) -> None:
    """Insert an element behind another one, on a line of its own if that one has its own."""
    parent = element.getparent()
    siblings = list(parent)
    place = siblings.index(element)
    space_before = siblings[place - 1].tail if place else parent.text
    new.tail = element.tail
    element.tail = space_before
    parent.insert(place + 1, new)


@dataclass(frozen=True)
class InlineRules:
    """How a format writes text with inline elements. Elements have names without namespaces."""

    containers: AbstractSet[str]  # elements around text; all others are kept closed
    words: AbstractSet[str] = frozenset()  # closed elements that are read as words
    characters: Mapping[str, str] = field(default_factory=dict)  # elements for one character
    collapses_space: bool = False  # whether a line end in the file is only a space

    def is_kept(self, element: Element) -> bool:
        """Return whether an element is kept closed, although it is around text."""
        return False

    def is_word(self, element: Element) -> bool:
        """Return whether a closed element is read as a word, such as a placeholder."""
        return local_name(element) in self.words


class Content:
    """The content of an element: its tokens, and the inline elements that the marks stand for."""

    def __init__(self, element: Element, rules: InlineRules) -> None:
        self.element = element
        self.rules = rules
        self.tokens: list[Token] = []
        self._inline: list[Element] = []
        self._made_characters: dict[str, Element] = {}
        self._read(element)

    def _read(self, parent: Element) -> None:
        self._add_text(parent.text)
        for child in parent:
            name = local_name(child)
            number = len(self._inline)
            if name in self.rules.characters and not child.attrib:
                character = self.rules.characters[name]
                self._made_characters[character] = child.tag
                self.tokens.append(character)
            elif name in self.rules.containers and not self.rules.is_kept(child):
                self._inline.append(child)
                self.tokens.append(Mark(Kind.OPEN, number))
                self._read(child)
                self.tokens.append(Mark(Kind.CLOSE, number))
            else:
                self._inline.append(child)
                kind = Kind.WORD if self.rules.is_word(child) else Kind.SINGLE
                self.tokens.append(Mark(kind, number))
            self._add_text(child.tail)

    def _add_text(self, text: str | None) -> None:
        if text:
            self.tokens.append(_SPACES.sub(" ", text) if self.rules.collapses_space else text)

    def write(self, tokens: Sequence[Token]) -> None:
        """Fill the element with these tokens, instead of what it contained."""
        parents = [self.element]
        _empty(self.element)
        for token in tokens:
            if isinstance(token, str):
                self._write_text(parents[-1], token)
            elif token.kind is Kind.CLOSE:
                parents.pop()
            else:
                inline = self._inline[token.number]
                inline.tail = None
                parents[-1].append(inline)
                if token.kind is Kind.OPEN:
                    _empty(inline)
                    parents.append(inline)

    def _write_text(self, parent: Element, text: str) -> None:
        etree = require("lxml.etree", extra="documents")
        characters = re.escape("".join(self._made_characters))
        for part in re.split(f"([{characters}])", text) if characters else [text]:
            if part in self._made_characters:
                etree.SubElement(parent, self._made_characters[part])
            else:
                _append_text(parent, part)


def _empty(element: Element) -> None:
    """Remove the content of an element, and keep its attributes and what follows it."""
    element.text = None
    for child in list(element):
        element.remove(child)


def valid_text(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return _INVALID.sub("", text)


def _append_text(parent: Element, text: str) -> None:
    text = valid_text(text)
    if not len(parent):
        parent.text = (parent.text or "") + text
    else:
        parent[-1].tail = (parent[-1].tail or "") + text
