"""Tokens with their probabilities are the words that a reader sees."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.tokenizer import SPACE_MARK
from transduce.translation.confidences import restore_tokens
from transduce.translation.markup import Glossary, protect
from transduce.translation.result import Token

END = Token("</s>", 0.5)
GLOSSARY = Glossary({"bank": "Sparkasse"})


def tokens(*pieces):
    return [*(Token(piece.replace(" ", SPACE_MARK), 0.5) for piece in pieces), END]


@pytest.mark.parametrize(
    ("source", "pieces", "expected"),
    [
        # The stand-in is X1.
        (
            "The bank opens.",
            [" Die", " X", "1", " öff", "net", "."],
            [" Die", " Sparkasse", " öff"],
        ),
        ("The bank opens.", [" Die", " X1 ", "öffnet."], [" Die", " Sparkasse ", "öffnet."]),
        ("bank", ["X", "1", "."], ["Sparkasse", "."]),
        ("It is {n} and bank.", [" X", "1 X", "2", "."], [" {n} Sparkasse", "."]),
        ("The bank opens.", [" Die", "<0x58>", "1", "."], [" Die", "Sparkasse", "."]),
        # One that the model invented is removed, and one that it lost has no token.
        ("The bank opens.", [" Die", " X", "7", " öffnet"], [" Die", " ", " öffnet"]),
        ("The bank opens.", [" Die", " Bank"], [" Die", " Bank"]),
        # Bytes are not the letters of the translation.
        ("The bank opens.", [" X", "1", "<0xE2>"], [" X", "1", "<0xE2>"]),
        ("Good <b>morning</b>.", [" Guten", " Morgen", "."], [" Guten", " Morgen", "."]),
    ],
    ids=str,
)
def test_stand_ins_are_the_words_of_the_reader(source, pieces, expected):
    translation = (
        "".join(pieces).removeprefix(" ").replace("<0xE2>", "\u2713").replace("<0x58>", "X")
    )
    found = restore_tokens(tokens(*pieces), translation, protect(source, GLOSSARY))
    shown = [token.text.replace(SPACE_MARK, " ") for token in found]
    assert shown[: len(expected)] == expected
    assert found[-1] == END


@settings(deadline=None)
@given(st.lists(st.sampled_from([" X", "X", "1", "2", " 1", " Haus", "x", "."]), max_size=12))
def test_the_probability_of_the_translation_stays(pieces):
    translation = "".join(pieces).removeprefix(" ")
    found = restore_tokens(tokens(*pieces), translation, protect("a bank {n}", GLOSSARY))
    assert math.prod(token.confidence for token in found) == 0.5 ** (len(pieces) + 1)
