"""What the model reads of a text: its sentences as token ids, with the markup set apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from transduce.data.tokenizer import Tokenizer
from transduce.translation import copies, markup, sentences
from transduce.translation.capitals import Capitals, RareInitials
from transduce.translation.markup_patterns import PROTECTED

_CODE = re.compile(r">>[^\s<>]+<<")  # of a target language


@dataclass(frozen=True)
class SourceSentence:
    """A sentence of a text, or a part of one that was too long."""

    text: str
    read: str  # what the model reads: without markup, and capitals that it does not know
    ids: list[int]  # ending with the end of the sentence


@dataclass(frozen=True)
class PreparedText:
    """A text split into pieces, each as the model sees it."""

    document: sentences.Document
    protected: tuple[markup.Protected, ...]  # one for each piece
    notices: tuple[str, ...]  # about parts that were split, cut or copied

    def with_case_of_first(self) -> PreparedText:
        """Return the text with the first piece to translate read in the case that it has."""
        pieces = list(self.protected)
        first = next(index for index, piece in enumerate(pieces) if piece.has_text)
        pieces[first] = replace(pieces[first], lower_case=None)
        return replace(self, protected=tuple(pieces))

    def searched(self) -> list[markup.Protected]:
        """Return the pieces that the engine has to translate."""
        return [piece for piece in self.protected if piece.has_text]


class Reader:
    """Reads texts of a language for a model that takes at most `max_tokens` at once."""

    def __init__(self, tokenizer: Tokenizer, language: str, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.language = language
        self.max_tokens = max_tokens
        self._capitals = Capitals(tokenizer, language)
        self._initials = RareInitials(tokenizer)
        self._unknown = copies.UnknownCharacters(tokenizer)

    def prepare(
        self, text: str, glossary: markup.Glossary | None = None, at: sentences.Split = "lines"
    ) -> PreparedText:
        """Split a text into pieces, take out their markup, and lower the case of capitals."""
        document = sentences.split(
            text,
            self.language,
            at,
            count_tokens=self._count_tokens,
            max_tokens=self.max_tokens,
            kept=glossary.pattern if glossary else PROTECTED,
        )
        pieces = [piece.text for piece in document.pieces]
        protected = [self._protect(piece, glossary) for piece in pieces]
        copied = copies.notices(zip(pieces, protected, strict=True), self._unknown)
        return PreparedText(document, tuple(protected), (*document.notices, *copied))

    def read(self, text: str) -> tuple[list[SourceSentence], list[str]]:
        """Return the sentences of a text, and notices about it.

        Parts that have nothing to translate, such as numbers between tags, are not among them.
        """
        prepared = self.prepare(text)
        pairs = zip(prepared.document.pieces, prepared.protected, strict=True)
        texts = [piece.text for piece, protected in pairs if protected.has_text]
        read = self.read_texts(prepared)
        ids = self.tokenizer.encode_batch(read)
        return list(map(SourceSentence, texts, read, ids)), prepared.document.notices

    def read_texts(self, prepared: PreparedText) -> list[str]:
        """Return the pieces to translate as the model reads them, with the target language's code.

        Some imported models need such a code before every sentence, as in ">>deu<< Good morning";
        the text has it before its first one.
        """
        texts = [piece.read for piece in prepared.searched()]
        code = _CODE.match(texts[0]) if texts else None
        # A model that knows the code encodes it as one piece, followed by the end.
        if code is None or len(self.tokenizer.encode(code[0])) != 2:
            return texts
        return [texts[0], *(f"{code[0]} {sentence}" for sentence in texts[1:])]

    def _protect(self, piece: str, glossary: markup.Glossary | None) -> markup.Protected:
        """Take out the markup of a piece, and lower the case of capitals."""
        unknown = self._unknown.of(piece)
        if unknown:
            kept = glossary.pattern if glossary else PROTECTED
            piece = self._initials.lower(piece, unknown, kept)
            unknown = self._unknown.of(piece)
        protected = markup.protect(piece, glossary, unknown)
        lower_case = self._lower_case(protected.plain)
        return replace(protected, lower_case=lower_case) if lower_case else protected

    def _lower_case(self, plain: str) -> str | None:
        """Return what the model reads of a text in capitals, behind the code of a language."""
        code = _CODE.match(plain)
        start = code.end() if code else 0
        lower = self._capitals.lower(plain[start:])
        return lower and plain[:start] + lower

    def _count_tokens(self, text: str) -> int:
        """Return the number of tokens, or a larger one if even that is within the limit."""
        # There are no more tokens than bytes, with the first space and the end.
        most = len(text.encode(errors="replace")) + 2
        if most <= self.max_tokens:
            return most
        # What is copied takes only a few tokens, however long it is.
        plain = markup.protect(text).plain
        return len(self.tokenizer.encode(self._lower_case(plain) or plain))
