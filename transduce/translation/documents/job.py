"""What a format gets to translate a file: the file, a function for texts, and the languages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from transduce.errors import InputError
from transduce.translation.documents.tags import Token, segment


class Content(Protocol):
    """A part of a file with text, such as a paragraph."""

    tokens: list[Token]

    def write(self, tokens: Sequence[Token]) -> None:
        """Replace the content by these tokens."""


@dataclass(frozen=True)
class Job:
    """A file to translate."""

    data: bytes
    name: str  # of the file, for messages
    translate: Callable[[list[str]], list[str]]
    languages: tuple[str, str]  # of source and target; empty if they are not known
    most_bytes: int = 500_000_000  # when it is unpacked
    most_tags: int | None = None  # each may take a kilobyte of memory

    def check_tags(self, *parts: bytes) -> None:
        """Refuse a file whose parts have more tags than allowed together."""
        tags = sum(part.count(b"<") for part in parts)
        if self.most_tags is not None and tags > self.most_tags:
            raise InputError(f"{self.name} has {tags:,} tags; expected at most {self.most_tags:,}")

    def translate_contents(self, contents: Sequence[Content]) -> None:
        """Translate the texts of all contents in one call, and write those that change."""
        segments = [segment(content.tokens) for content in contents]
        texts = [item.text for item in segments if item.has_words]
        translations = iter(self.translate(texts))
        for content, item in zip(contents, segments, strict=True):
            translation = next(translations) if item.has_words else item.text
            if translation != item.text:
                content.write(item.replaced(translation))
