"""What is copied because no model can translate it: unknown characters and endless words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from transduce.data.tokenizer import Tokenizer
from transduce.translation.markup import Protected

# Such as NUL. Tokenizers drop them; those that are spaces separate sentences or words.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")


class UnknownCharacters:
    """The characters for which a model has only bytes: emoji, or a script that it never saw.

    A model that is given such bytes writes other bytes in their place. Control characters count,
    too.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._met: dict[str, bool] = {}  # whether each character that was met is unknown

    def of(self, text: str) -> str:
        """Return the unknown characters of a text, each once and sorted."""
        if text.isascii() and not _CONTROL.search(text):
            return ""
        return "".join(sorted(filter(self._is_unknown, set(text))))

    def _is_unknown(self, character: str) -> bool:
        if character.isascii() or character.isspace():
            return bool(_CONTROL.match(character))
        if character not in self._met:
            ids = self._tokenizer.encode(character)[:-1]
            pieces = self._tokenizer.pieces(ids)
            is_unknown = any(piece.startswith("<0x") or piece == "<unk>" for piece in pieces)
            self._met[character] = is_unknown
        return self._met[character]


def notices(pieces: Iterable[tuple[str, Protected]], unknown: UnknownCharacters) -> Iterator[str]:
    """Yield notices about what was copied from the pieces of a text, each once per text."""
    foreign = []  # pieces in an unknown script
    long_words = []
    for text, protected in pieces:
        sizes = [len(span.text) for span in protected.spans if span.is_long_word]
        long_words += sizes
        is_copied = not protected.has_text and not sizes
        if is_copied and any(map(str.isalpha, unknown.of(text))):
            foreign.append(text)

    if len(foreign) == 1:
        yield f'"{foreign[0][:40]}" is in a script that the model has never seen, and was copied'
    elif foreign:
        yield (
            f'"{foreign[0][:40]}" and {len(foreign) - 1:,} more are in a script that the model has '
            "never seen, and were copied"
        )
    if len(long_words) == 1:
        yield f"a word of {long_words[0]:,} characters was copied"
    elif long_words:
        yield f"{len(long_words):,} words of up to {max(long_words):,} characters were copied"
