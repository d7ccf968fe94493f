"""TMX, the exchange format of translators' memories, read as a stream of XML events in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from transduce.data.pairs import Chunk
from transduce.data.readers.compression import blocks
from transduce.data.readers.containers import speaks
from transduce.errors import DataError

_CODES = {
    "bpt",
    "ept",
    "ph",
    "it",
    "ut",
    "sub",
}  # a segment's native markup: not part of what is said


def read_tmx(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """A pair for each unit, by its languages. A unit that lacks one of them is a pair with an empty side."""
    units = _Units()
    met: set[str] = set()
    try:
        for block in blocks(path):
            units.parser.Parse(block, False)
            if units.done:
                met.update(language for _, variants in units.done for language in variants)
                yield _chunk(path, units.take(), languages)
        units.parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"{path}:{error.lineno} is not well-formed XML: {reason}") from None
    for language in languages:
        if not any(speaks(found, language) for found in met):
            found = ", ".join(sorted(met)) or "no text"
            raise DataError(
                f"{path} has no {language!r}; it has {found}: expected language codes such as these"
            )


def _chunk(
    path: Path, units: list[tuple[int, dict[str, str]]], languages: tuple[str, str]
) -> Chunk:
    def side(variants: dict[str, str], wanted: str) -> str:
        return next((text for language, text in variants.items() if speaks(language, wanted)), "")

    sources, targets = (
        [side(variants, language) for _, variants in units] for language in languages
    )
    return Chunk(sources, targets, [line for line, _ in units], str(path), str(path))


class _Units:
    """What the parser has met: finished units (line, text by language) and the one it is in."""

    def __init__(self) -> None:
        self.done: list[tuple[int, dict[str, str]]] = []
        self._unit: dict[str, str] = {}
        self._line = 0
        self._language = ""
        self._segment: list[str] | None = None
        self._inside_codes = 0
        # Fetches nothing from outside, and bounds the growth of entities.
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def take(self) -> list[tuple[int, dict[str, str]]]:
        """The finished units, handed over."""
        done, self.done = self.done, []
        return done

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self._unit, self._line = {}, self.parser.CurrentLineNumber
        elif tag == "tuv":
            self._language = attributes.get("xml:lang", attributes.get("lang", ""))
        elif tag == "seg":
            self._segment = []
        elif tag in _CODES:
            self._inside_codes += 1

    def _end(self, tag: str) -> None:
        if tag == "tu":
            self.done.append((self._line, self._unit))
        elif tag == "seg" and self._segment is not None:
            # A line break is layout here.
            text = "".join(self._segment).replace("\r\n", " ").replace("\n", " ")
            self._unit.setdefault(self._language, text)
            self._segment = None
        elif tag in _CODES:
            self._inside_codes -= 1

    def _characters(self, text: str) -> None:
        if self._segment is not None and not self._inside_codes:
            self._segment.append(text)
