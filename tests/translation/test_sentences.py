# ruff: noqa: RUF001 - ambiguous characters are what is tested here
"""A document is its pieces and its layout: nothing is lost, nothing is too long, sentences are sentences."""

import re
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.errors import InputError
from transduce.translation import sentences
from transduce.translation.markup_patterns import find
from transduce.translation.sentences import Document, join, split, splits_sentences

LANGUAGES = st.sampled_from(["en", "de", "zh", "ja", "ar", "pt-BR", "xx", ""])
SNIPPETS = st.sampled_from(
    [
        *(
            "Dr. Smith ",
            "e.g. ",
            "3.14",
            "...",
            "…",
            "\n",
            "\r\n",
            "\n\n",
            "\t",
            "  ",
            "\u2028",
            "; ",
            ", ",
            " – ",
            "word ",
        ),
        *(
            "<p>",
            "</p>",
            "<b>",
            "</b>",
            "https://a.example/b. ",
            "%s. ",
            "{name}",
            "👨\u200d👩\u200d👧",
            "e\u0301",
        ),
        *("。", "！", "你好", "مرحبا؟ "),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(st.one_of(SNIPPETS, st.text(max_size=3))).map("".join))


def letters(text):
    """Counts a token a character, as the most hostile tokenizer would."""
    return len(text)


def pieces(document):
    return [piece.text for piece in document.pieces]


@settings(deadline=None, max_examples=500)
@given(text=TEXTS, language=LANGUAGES, max_tokens=st.integers(0, 20))
@example("\ud800. Hi. \udfff", "en", 0)
@example("a\n\n\n b \r\n\tc ", "en", 1)
def test_joined_again_the_pieces_are_the_text(text, language, max_tokens):
    document = split(text, language, count_tokens=letters, max_tokens=max_tokens)
    assert join(document, pieces(document)) == text
    for piece in document.pieces:
        assert piece.text == piece.text.strip() != ""
        assert not re.search(r"[\n\r\t\u2028]", piece.text)
        assert any(map(str.isalnum, piece.text))


@settings(deadline=None, max_examples=300)
@given(text=TEXTS, max_tokens=st.integers(1, 30))
def test_no_piece_is_too_long_and_every_cut_is_told(text, max_tokens):
    document = split(text, count_tokens=letters, max_tokens=max_tokens)
    assert all(letters(piece.text) <= max_tokens for piece in document.pieces)
    cut = [piece for piece in document.pieces if piece.parts > 1]
    assert len(document.notices) == sum(piece.part == 1 for piece in cut)
    assert bool(cut) == (len(document.pieces) > len(split(text).pieces))


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            "Dr. Smith paid $3.50... He left. Why?",
            ["Dr. Smith paid $3.50...", "He left.", "Why?"],
        ),
        (
            "en",
            "The U.S. is big, e.g. here. At 5 p.m. we go.",
            ["The U.S. is big, e.g. here.", "At 5 p.m. we go."],
        ),
        (
            "en",
            "J. R. R. Tolkien wrote. (Did he?) Yes.) Next one.",
            ["J. R. R. Tolkien wrote.", "(Did he?) Yes.)", "Next one."],
        ),
        (
            "de",
            "Am 3. Mai kam z. B. Dr. Meier. Er ging.",
            ["Am 3. Mai kam z. B. Dr. Meier.", "Er ging."],
        ),
        ("zh", "你好。我是学生！你呢？", ["你好。", "我是学生！", "你呢？"]),
        ("ja", "これはペンです。そうですか。", ["これはペンです。", "そうですか。"]),
        ("ar", "مرحبا بكم. كيف حالك؟ أنا بخير.", ["مرحبا بكم.", "كيف حالك؟", "أنا بخير."]),
        ("en", "<p>One.</p><p>Two <b>and</b> a half.</p>", ["One.", "Two <b>and</b> a half."]),
        (
            "en",
            'See <a title="A. Is this. Cut?">it</a> now.',
            ['See <a title="A. Is this. Cut?">it</a> now.'],
        ),
        ("en", "Go to http://a.example/?Cut. Now!", ["Go to http://a.example/?Cut.", "Now!"]),
        ("en", "a\tb\0c\x1fd", ["a", "b", "c", "d"]),
        ("en", "---\n***\n😀 !? ", []),
        ("en", "", []),
    ],
)
def test_sentences_are_found(language, text, expected):
    assert pieces(split(text, language)) == expected


WRAPPED = "One line\nand a half. Two.\n\n<p>Three,\tin a\n<b>block</b>. Four.</p>"


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (
            "lines",
            ["One line", "and a half.", "Two.", "Three,", "in a", "<b>block</b>.", "Four."],
        ),
        (
            "sentences",
            ["One line\nand a half.", "Two.", "Three,\tin a\n<b>block</b>.", "Four."],
        ),
        (
            "nothing",
            ["One line\nand a half. Two.", "Three,\tin a\n<b>block</b>. Four."],
        ),
    ],
)
def test_a_text_is_split_where_the_caller_wants(at, expected):
    document = split(WRAPPED, "en", at)
    assert pieces(document) == expected
    assert join(document, pieces(document)) == WRAPPED


def test_a_text_that_must_not_be_split_is_split_if_it_is_too_long():
    document = split("One. Two. Three.", "en", "nothing", count_tokens=words, max_tokens=2)
    assert pieces(document) == ["One. Two.", "Three."]


def words(text):
    return len(text.split())


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("one two three; four five, six seven", 6, ["one two three;", "four five, six seven"]),
        (
            "one; two three, four five six",
            5,
            ["one; two three,", "four five six"],
        ),  # not so near the start
        ("one two three, four five six", 5, ["one two three,", "four five six"]),
        ("it costs 1,000 or 12:30 euros now", 4, ["it costs 1,000 or", "12:30 euros now"]),
        ("one two – three four", 3, ["one two –", "three four"]),
        ("one two three four", 3, ["one two three", "four"]),
        ("one, two three four five six", 5, ["one,", "two three four five six"]),
    ],
)
def test_a_long_sentence_is_cut_at_clauses_then_words(text, most, expected):
    document = split(text, count_tokens=words, max_tokens=most)
    assert pieces(document) == expected
    assert [(piece.part, piece.parts) for piece in document.pieces] == [(1, 2), (2, 2)]
    assert "was split into 2 parts" in document.notices[0]


def test_a_word_too_long_is_cut_between_what_a_reader_sees_as_characters():
    assert pieces(split("abcdefgh", count_tokens=letters, max_tokens=3)) == ["abc", "def", "gh"]
    assert pieces(split("abe\u0301f", count_tokens=letters, max_tokens=3)) == ["ab", "e\u0301f"]
    assert pieces(split("我们是学生，你们是老师", "zh", count_tokens=letters, max_tokens=7)) == [
        "我们是学生，",
        "你们是老师",
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["word, ", "https://a.example/b,%20c ", "<a title='x, y; z'>", "word "]),
        min_size=1,
    )
)
def test_what_is_protected_is_not_cut_while_it_fits(parts):
    text = "".join(parts)
    document = split(text, count_tokens=letters, max_tokens=30)
    whole = [text[start:end] for start, end in find(text)]
    assert [
        piece.text[start:end] for piece in document.pieces for start, end in find(piece.text)
    ] == whole


def test_layout_is_kept_around_translations():
    text = "  Title\n\n\tOne. Two.  Three.\r\n\r\n---\n"
    document = split(text)
    assert join(document, [piece.upper() for piece in pieces(document)]) == text.upper()


def test_spaces_between_sentences_follow_the_language():
    document = split("你好。我是学生。\n你呢？", "zh")
    assert (
        join(document, ["Hello.", "I am a student.", "You?"], "en")
        == "Hello. I am a student.\nYou?"
    )
    document = split("Hello. I am. \n You?", "en")
    assert join(document, ["你好。", "我是。", "你呢？"], "zh-Hans") == "你好。我是。 \n 你呢？"


def test_without_the_library_a_line_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    assert not splits_sentences()
    assert pieces(split("One. Two.\nThree.")) == ["One. Two.", "Three."]
    assert pieces(split("One. Two. Three.", count_tokens=words, max_tokens=2)) == [
        "One. Two.",
        "Three.",
    ]


def test_a_library_that_loses_text_does_not_make_us_lose_it(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "sentencex", SimpleNamespace(segment=lambda language, line: [line[:5]])
    )
    assert pieces(split("One. Two.")) == ["One.", "Two."]


def test_a_limit_below_a_single_character_still_gets_everything_through():
    assert pieces(split("ab", count_tokens=lambda part: 9, max_tokens=3)) == ["a", "b"]


def test_wrong_numbers_are_refused():
    with pytest.raises(InputError, match="1 translations for 0 pieces"):
        join(Document((), "", "en"), ["x"])
    with pytest.raises(InputError, match="max_tokens is 5"):
        split("x", max_tokens=5)


@pytest.mark.parametrize(
    "part",
    ["word ", "a", "word, ", "Hello there. ", "你", "{", "<", " ", "\n", ".", "a@", "👨‍👩‍👧"],
)
def test_half_a_megabyte_on_one_line_takes_seconds(part):
    text = part * (500_000 // len(part))
    start = time.process_time()
    document = split(text, count_tokens=letters, max_tokens=500)
    assert join(document, pieces(document)) == text
    assert time.process_time() - start < 5


def test_a_line_in_blocks_has_the_sentences_of_the_whole_line(monkeypatch):
    pytest.importorskip("sentencex")
    text = (
        "Dr. Smith came (at 3 p.m.). \u201cWhy?\u201d he said. \u6211\u4eec\u5728\u3002 No! e.g. "
        * 40
    )
    whole = pieces(split(text))
    monkeypatch.setattr(sentences, "BLOCK", 100)
    assert pieces(split(text)) == whole
    assert len(whole) > 100


def test_a_long_line_without_spaces_takes_seconds():
    pytest.importorskip("sentencex")
    start = time.process_time()
    assert len(split("\u6211\u4eec\u5728\u3002" * 40_000, "zh").pieces) == 40_000
    assert time.process_time() - start < 4


def test_no_sentence_ends_at_the_dot_of_a_name():
    text = "PLEASE OPEN HOUSE.PDF AND SHOP.COM. THEN GO HOME."
    assert [piece.text for piece in split(text).pieces] == [
        "PLEASE OPEN HOUSE.PDF AND SHOP.COM.",
        "THEN GO HOME.",
    ]


def test_a_hard_space_between_an_initial_and_a_full_stop_is_harmless():
    pytest.importorskip("sentencex")
    text = "This is plan A\u00a0. It is good."
    document = split(text)
    assert join(document, [piece.text for piece in document.pieces]) == text
