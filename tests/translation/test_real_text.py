"""Real text: what a model cannot translate is copied, and the rest is translated."""

import re
import time

import pytest

from transduce.translation import markup, sentences
from transduce.translation.markup_patterns import find
from transduce.translation.restore import restore
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(bundle):
    return Translator(bundle, device="cpu", engine="torch")


@pytest.mark.parametrize(
    ("text", "kept", "plain"),
    [
        ("Run <code>rm -rf /</code> now.", ["<code>rm -rf /</code>"], "Run X1 now."),
        ("So: <pre>int main() { }</pre>", ["<pre>int main() { }</pre>"], "So: X1"),
        ("<script>var x = 'Hi';</script>Good.", ["<script>var x = 'Hi';</script>"], "X1 Good."),
        ("Text <![CDATA[raw <b>]]> more.", ["<![CDATA[raw <b>]]>"], "Text X1 more."),
        ("Hi <%= x %>, so <? if (a > b) ?>.", ["<%= x %>", "<? if (a > b) ?>"], "Hi X1, so X2."),
        ("Go <0>here</0> now.", ["<0>", "</0>"], "Go here now."),
        ("I <00:01.500>am <00:00:02.00>in.", ["<00:01.500>", "<00:00:02.00>"], "I am in."),
        ("<a x=\"b > c\" y='>'>One</a>.", ["<a x=\"b > c\" y='>'>", "</a>"], "One."),
        ('The <i translate="no">A b</i>.', ['<i translate="no">A b</i>'], "The X1."),
        ("<b class='x notranslate'>A b</b>.", ["<b class='x notranslate'>A b</b>"], "X1."),
        ("<p translate=no>a<p>b</p>c</p>d.", ["<p translate=no>a<p>b</p>c</p>"], "X1 d."),
        ("<b class=notranslated>A b</b>.", ["<b class=notranslated>", "</b>"], "A b."),
        ("If a < b and c >= d stop.", ["<", ">="], "If a X1 b and c X2 d stop."),
        ("It is 5\u00a0000 euros.", ["5\u00a0000"], "It is X1 euros."),
        ("per\u00a0year and so\u00adon\u200b.", [], "per year and soon."),
        ("One\\nTwo three.", ["\\n"], "One X1 Two three."),
        ("Hello :name, welcome.", [":name"], "Hello X1, welcome."),
        ("Use `git commit` now.", ["`git commit`"], "Use X1 now."),
        ("See [this](a/b?c).", ["(a/b?c)"], "See [this]X1."),
        ("A **very big** one.", ["**", "**"], "A very big one."),
        ("Note: this is 10:30, ratio 1:2.", [], "Note: this is 10:30, ratio 1:2."),
        ("C:\\new is a path: yes.", ["C:\\new"], "X1 is a path: yes."),
        ("One\\ntwo three.", ["\\n"], "One X1 two three."),
    ],
)
def test_code_signs_and_markdown_are_taken_out_and_put_back(text, kept, plain):
    protected = markup.protect(text)
    assert [span.text for span in protected.spans] == kept
    assert protected.plain == plain
    if "\u00ad" not in text:
        assert restore(plain, protected) == text


def test_markdown_signs_enclose_the_same_words():
    protected = markup.protect("A **very big** one.")
    opening, closing = protected.spans
    assert (opening.word, opening.end, opening.partner, closing.partner) == (1, 3, 1, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("| Name | Big city |\n| --- | :-: |\n| A. B. | 25 |", ["Name", "Big city", "A. B.", "25"]),
        ("| a `b|c` d | e \\| f |", ["a `b|c` d", "e \\| f"]),
        ("this | that", ["this | that"]),
        ("```python", []),
        ("Run:\n```sh\nls -l\n# all files\n```\nDone.", ["Run:", "Done."]),
        ("~~~\na ~~~ b\n~~~", []),
    ],
)
def test_tables_and_code_of_markdown_keep_their_form(text, expected):
    document = sentences.split(text)
    translated = [piece.text for piece in document.pieces if markup.protect(piece.text).has_text]
    assert translated == expected
    assert sentences.join(document, [piece.text for piece in document.pieces]) == text


def test_an_icu_message_over_several_lines_is_one_piece():
    text = "{n, plural,\n one {# file}\n other {# files}\n} were deleted.\nNext line."
    pieces = [piece.text for piece in sentences.split(text).pieces]
    assert pieces == [text.partition("\nNext")[0], "Next line."]


@pytest.mark.parametrize(
    "word",
    [
        "\U0001f600",
        "\u65e5\u672c\u8a9e",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u2603",
        "\0",
        "\x1b",
    ],
)
def test_characters_that_the_model_never_saw_are_copied(word, translator):
    translation = translator.translate(f"The train leaves {word} in 98 weeks.")
    assert translation.text.count(word) == 1
    assert "\ufffd" not in translation.text


def test_a_sentence_in_an_unknown_script_is_copied_with_a_notice(translator):
    text = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645"
    translation = translator.translate(text)
    assert translation.text == text
    assert translation.notices == (
        f'"{text}" is in a script that the model has never seen, and was copied',
    )


@pytest.mark.parametrize("unit", ["a", "a.", "abc,", "a\u200b", "x'", "{a}", "&amp;a", "\u00df!"])
def test_an_endless_word_is_copied_at_once(unit, translator):
    word = unit * (100_000 // len(unit))
    start = time.monotonic()
    translation = translator.translate(f"{word} in 98 weeks")
    assert word in translation.text
    assert translation.notices == (f"a word of {len(word):,} characters was copied",)
    assert time.monotonic() - start < 10


def test_a_text_without_spaces_is_no_endless_word():
    chinese = "\u6211\u4eec\u5728\u8fd9\u91cc\u3002" * 1000
    cells = "<td>Name</td><td>Age</td>" * 1000
    assert find(chinese) == []
    assert len(find(cells)) == 4000
    list_of_words = ",".join(["apple", "pear"] * 50)  # shorter than LONG_RUN
    assert find(list_of_words) == []


def test_notices_about_copies_are_given_once_per_text(translator):
    japanese = "\u65e5\u672c\u8a9e" * 2000
    words = " and ".join(["a" * 300] * 20)
    assert translator.translate(japanese).notices[1:] == (
        f'"{japanese[:40]}" and 142 more are in a script that the model has never seen, and were '
        "copied",
    )
    notices = translator.translate(words).notices
    assert [notice for notice in notices if notice.endswith("copied")] == [
        "20 words of up to 300 characters were copied"
    ]


@pytest.mark.parametrize("kept", ["{name}", "https://a.org", "\U0001f600", "%s", "<i>{x}</i>"])
def test_a_prefix_with_a_placeholder_does_not_double_it(translator, kept):
    translation = translator.translate(f"in 98 weeks {kept} in 12 days", prefix=f"In {kept}")
    assert translation.text.startswith("In ")
    for part in re.split("(<[^<>]*>)", kept):
        assert translation.text.count(part) == 1 or not part, translation.text


def test_a_prefix_may_have_what_the_source_has_not(translator):
    assert translator.translate("in 98 weeks", prefix="In {name}").text.startswith("In {name}")


def test_a_prefix_with_markup_does_not_double_a_tag(translator):
    translation = translator.translate("<b>in 98 weeks</b>", prefix="<b>in 98")
    assert translation.text.count("<b>") == translation.text.count("</b>") == 1
