"""What a format gets to translate a file: the file, a function for texts, and the languages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transduce.translation.documents.tags import Segment, Token


@dataclass(frozen=True)
class Job:
    """A file to translate."""

    data: bytes
    name: str  # of the file, for messages
    translate: Callable[[list[str]], list[str]]
    languages: tuple[str, str]  # of source and target; empty if they are not known
    most_bytes: int = 500_000_000  # when it is unpacked

    def translate_segments(self, segments: Sequence[Segment]) -> list[list[Token] | None]:
        """Translate all segments in one call, and return their new tokens.

        A segment has none if its text stays as it is.
        """
        texts = [item.text for item in segments if item.has_words]
        translations = iter(self.translate(texts))
        replaced: list[list[Token] | None] = []
        for item in segments:
            translation = next(translations) if item.has_words else item.text
            replaced.append(None if translation == item.text else item.replaced(translation))
        return replaced
