"""Read TMX, the exchange format of translation memories, as XML events in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from transduce.data.languages import base_language
from transduce.data.pairs import Chunk
from transduce.data.readers.columns import is_language
from transduce.data.readers.compression import blocks
from transduce.errors import DataError

# Elements that hold the formatting codes of a segment, which are not part of its text.
_CODES = {"bpt", "ept", "ph", "it", "ut", "sub"}


class _Unit(NamedTuple):
    """A translation unit: a text in several languages."""

    line: int
    texts: dict[str, str]  # by language


def read_tmx(path: Path, languages: tuple[str, str], strict: bool) -> Iterator[Chunk]:
    """Read a pair from each unit. A unit that lacks a language is a pair with an empty side."""
    parser = _Parser()
    found_languages: set[str] = set()
    try:
        for block in blocks(path):
            parser.feed(block)
            units = parser.take()
            if units:
                for unit in units:
                    found_languages.update(unit.texts)
                yield _chunk(path, units, languages)
        parser.finish()
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"{path}:{error.lineno} is not well-formed XML: {reason}") from None
    except (LookupError, ValueError) as error:
        # Python looks up the encodings that expat does not know, and rejects most of them.
        raise DataError(
            f"{path} declares an encoding that cannot be read ({error}); convert it to UTF-8, and "
            "change its first line"
        ) from None

    # A wrong code would otherwise give a corpus with an empty side.
    for language in languages:
        if not any(is_language(code, language) for code in found_languages):
            known = ", ".join(sorted(found_languages)) or "no text"
            raise DataError(
                f"{path} has no {language!r}; it has {known}: "
                "set the source and target language to such codes"
            )


def tmx_languages(path: Path) -> tuple[str, str] | None:
    """Return the source and target language of a TMX file, or None if they are not clear.

    The header names the source; the first unit must have one other language.
    """
    parser = _Parser()
    try:
        for block in blocks(path):
            parser.feed(block)
            units = parser.take()
            if units:
                break
        else:
            return None
    except (expat.ExpatError, LookupError, ValueError):
        return None  # reading all of it gives a message
    codes = [base_language(code) for code in units[0].texts]
    source = base_language(parser.source_language)
    if source not in codes:  # such as *all*
        source = codes[0] if codes else ""
    targets = [code for code in codes if code != source]
    return (source, targets[0]) if len(targets) == 1 else None


def _chunk(path: Path, units: list[_Unit], languages: tuple[str, str]) -> Chunk:
    sources = [_text(unit, languages[0]) for unit in units]
    targets = [_text(unit, languages[1]) for unit in units]
    return Chunk(sources, targets, [unit.line for unit in units], str(path), str(path))


def _text(unit: _Unit, language: str) -> str:
    for code, text in unit.texts.items():
        if is_language(code, language):
            return text
    return ""


class _Parser:
    """Collects translation units from the events of an XML parser.

    The structure is <tu> <tuv xml:lang="en"> <seg>text</seg> </tuv> ... </tu>.
    """

    def __init__(self) -> None:
        self._finished: list[_Unit] = []
        self.source_language = ""  # that the header names

        # The unit, variant and segment that the parser is in.
        self._unit = _Unit(0, {})
        self._language = ""
        self._segment: list[str] | None = None
        self._open_codes = 0

        # expat loads no external entities, and limits the growth of internal ones.
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def feed(self, block: bytes) -> None:
        """Parse the next bytes of the file."""
        self._parser.Parse(block, False)

    def finish(self) -> None:
        """Check that the document is complete."""
        self._parser.Parse(b"", True)

    def take(self) -> list[_Unit]:
        """Return the units that were finished since the last call."""
        units = self._finished
        self._finished = []
        return units

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self._unit = _Unit(self._parser.CurrentLineNumber, {})
        elif tag == "header":
            self.source_language = attributes.get("srclang", "")
        elif tag == "tuv":
            self._language = attributes.get("xml:lang", attributes.get("lang", ""))
        elif tag == "seg":
            self._segment = []
        elif tag in _CODES:
            self._open_codes += 1

    def _end(self, tag: str) -> None:
        if tag == "tu":
            self._finished.append(self._unit)
        elif tag == "seg" and self._segment is not None:
            # A line break in XML is only layout.
            text = "".join(self._segment).replace("\r\n", " ").replace("\n", " ")
            self._unit.texts.setdefault(self._language, text)
            self._segment = None
        elif tag in _CODES:
            self._open_codes -= 1

    def _characters(self, text: str) -> None:
        if self._segment is not None and not self._open_codes:
            self._segment.append(text)
