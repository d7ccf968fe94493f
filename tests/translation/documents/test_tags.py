"""Inline markup as tags: every mark comes back once, correctly nested."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.translation.documents.tags import Kind, Mark, segment

OPEN, CLOSE = Mark(Kind.OPEN, 0), Mark(Kind.CLOSE, 0)
BREAK, CODE = Mark(Kind.SINGLE, 1), Mark(Kind.WORD, 2)


def test_marks_at_the_ends_and_around_everything_stay_outside():
    found = segment([" ", BREAK, OPEN, "one ", CODE, " two", CLOSE, "\n"])
    assert found.text == "one {x2} two"
    assert found.replaced("zwei {x2} eins") == [
        " ",
        BREAK,
        OPEN,
        "zwei ",
        CODE,
        " eins",
        CLOSE,
        "\n",
    ]


def test_a_text_that_contains_such_tags_gets_other_ones():
    found = segment(["use <x0> and ", OPEN, "this", CLOSE])
    assert found.text == "use <x0> and <xx0>this</xx0>"
    assert found.replaced("<xx0>dies</xx0> und <x0>") == [OPEN, "dies", CLOSE, " und <x0>"]


@pytest.mark.parametrize(
    "translation",
    ["a</x0> b <x0>c", "a <x0>b", "a b", "<x0><x0>a</x0></x0> b", "<x0>a</x0> b <x1/><x1/>"],
)
def test_marks_that_come_back_wrong_are_put_back_in_their_order(translation):
    found = segment(["one ", OPEN, "two", CLOSE, BREAK, " three"])
    tokens = found.replaced(translation)
    assert [token for token in tokens if isinstance(token, Mark)] == [OPEN, CLOSE, BREAK]


@given(st.lists(st.sampled_from(["a", " ", "<x0>", "{x2}", OPEN, CLOSE, BREAK, CODE]), max_size=8))
def test_a_text_that_stays_gives_the_same_tokens(tokens):
    marks = [token for token in tokens if isinstance(token, Mark)]
    is_nested = marks.count(OPEN) == marks.count(CLOSE) <= 1 and marks.count(BREAK) <= 1
    if (
        is_nested
        and marks.count(CODE) <= 1
        and (OPEN not in marks or marks.index(OPEN) < marks.index(CLOSE))
    ):
        found = segment(tokens)
        replaced = found.replaced(found.text)
        assert [token for token in replaced if isinstance(token, Mark)] == marks
        texts = [
            "".join(token for token in each if isinstance(token, str))
            for each in (tokens, replaced)
        ]
        assert texts[0] == texts[1]
