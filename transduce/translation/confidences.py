"""The probability of each token of a translation, with the words that the reader sees."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from transduce.data.tokenizer import SPACE_MARK
from transduce.translation.markup import Protected
from transduce.translation.restore import find_stand_ins
from transduce.translation.result import Token

_BYTE = re.compile(r"<0x([0-7][0-9A-F])>")  # a letter that is no piece


def restore_tokens(
    tokens: Sequence[Token], translation: str, protected: Protected
) -> tuple[Token, ...]:
    """Return the tokens of a translation with terms and placeholders in place of stand-ins.

    The tokens of one stand-in become one token, whose probability is their product. Where tokens
    are not the letters of the translation, such as parts of a character, all stay as they are.
    """
    *pieces, end = tokens
    pieces = [Token(_BYTE.sub(_letter, piece.text), piece.confidence) for piece in pieces]
    letters = "".join(piece.text for piece in pieces)
    first = len(letters) - len(translation)  # the space before the first word
    if letters[max(first, 0) :].replace(SPACE_MARK, " ") != translation:
        return tuple(tokens)
    copies = [
        (first + start, first + stop, protected.spans[index].text if index >= 0 else "")
        for start, stop, index in sorted(find_stand_ins(translation, protected))
    ]

    restored = []
    together: list[Token] = []  # since the last place where no stand-in is cut
    begin = 0
    place = 0
    for piece in pieces:
        together.append(piece)
        place += len(piece.text)
        if any(start < place < stop for start, stop, _ in copies):
            continue
        text = letters[begin:place]
        for start, stop, shown in reversed(copies):
            if begin <= start and stop <= place:
                text = text[: start - begin] + shown + text[stop - begin :]
        probability = math.prod(token.confidence for token in together)
        restored.append(Token(text, probability))
        together = []
        begin = place
    return (*restored, end)


def _letter(byte: re.Match[str]) -> str:
    return chr(int(byte[1], 16))
