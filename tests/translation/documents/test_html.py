"""HTML pages: text and attributes change, every other character stays."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.translation.documents.samples import backwards, capitals, job
from transduce.errors import InputError
from transduce.translation.documents.html import translate_html, without_references

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8"><title>my page</title>
  <meta name="description" content="all about it"><meta name="robots" content="noindex">
  <style>p > b { color: red }</style>
  <script>if (a < b && c > d) { alert("<p>no text</p>") }</script>
</head>
<body class='plain'>
  <!-- a comment -->
  <h1 title="a hint">hello   <em>there</em></h1>
  <p>press <kbd>Ctrl</kbd> and
     <a href="x?a=1&amp;b=2">read on</a>.<br>caf&eacute; &amp; bar &lt;b&gt;</p>
  <pre>  keep
   this </pre>
  <img src=x.png alt='a picture'><input type=submit value="send"><input value="typed">
  <p translate="no">Brand</p><p>ask <span class="x notranslate">Ms Field</span> now</p>
  <p>12 &nbsp; &copy; 3</p>
</body>
</html>
"""
GERMAN_PAGE = PAGE.replace('<html lang="en">', '<html lang="de">')


def translated(page, translate=capitals):
    return translate_html(job(page, "a.html", translate)).decode()


def test_only_text_and_readable_attributes_change():
    expected = GERMAN_PAGE
    for text in (
        "my page", "all about it", "a hint", "there", "press ", "read on", "a picture", '"send', "ask ", " now",
    ):  # fmt: skip
        expected = expected.replace(text, text.upper())
    expected = expected.replace("hello   <", "HELLO <").replace(" and\n     <", " AND <")
    expected = expected.replace("caf&eacute; &amp; bar", "CAFÉ &amp; BAR")
    assert translated(PAGE) == expected


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ('<html lang="en">', '<html lang="de">'),
        ("<HTML class=en lang=en-GB dir=ltr>", "<HTML class=en lang=de dir=ltr>"),
        ("<html lang='en' xml:lang='en'>", "<html lang='de' xml:lang='de'>"),
        ('<html lang="fr">', '<html lang="fr">'),  # the page is in another language
        ('<html hreflang="en" lang="">', '<html hreflang="en" lang="">'),
        ('<html><p lang="en">', '<html><p lang="en">'),
    ],
)
def test_the_language_of_a_page_becomes_that_of_its_translation(tag, expected):
    assert translated(f"{tag}\nhello") == f"{expected}\nHELLO"


def test_a_page_whose_language_was_detected_declares_the_new_one():
    page = job('<html class="lang" lang="en-GB"><p lang="fr">', "a.html", languages=("", "de"))
    assert translate_html(page) == b'<html class="lang" lang="de"><p lang="fr">'


def test_sentences_are_given_without_entities_and_line_ends():
    seen = []
    translated(PAGE, lambda texts: seen.extend(texts) or texts)
    assert "press {x0} and <x1>read on</x1>." in seen
    assert "café & bar <b>" in seen
    assert "Brand" not in " ".join(seen)


def test_an_untranslated_page_is_the_same_page():
    assert translated(PAGE, list) == GERMAN_PAGE


def test_tags_move_with_their_words():
    assert translated("<p>see <b>it</b> now</p>", backwards) == "<p>now <b> it </b> see</p>"


def test_text_that_looks_like_markup_stays_text():
    page = "<p>use &lt;b&gt; and &lt;x0&gt; or <i>a</i> b</p>"
    assert translated(page) == "<p>USE &lt;b&gt; AND &lt;x0&gt; OR <i>A</i> B</p>"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encoding_is_kept(encoding):
    declared = "<meta charset=windows-1252>" if encoding == "cp1252" else ""
    page = f"{declared}<p>größe \u20ac</p>\r\n"
    result = translate_html(job(page.encode(encoding), "a.html"))
    assert result == f"{declared}<p>GRÖSSE \u20ac</p>\r\n".encode(encoding)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("Don&#39;t say &quot;Caf&eacute;&#x2026;&QUOT;.", 'Don\'t say "Café…".'),
        ("&lt;b&gt; &amp;eacute; &#60;&#62;&#38;", None),  # they would become markup
        ("&#123;&#123;a&#125;&#125; &#42;&#42;a&#42;&#42; &percnt;s &bsol;n", None),
        ("10&nbsp;km, so&shy;on, a&#8203;b&#10;c", None),
        ("&no-such; &nosuch; &notit; R&D &amp", None),
        ("<a title='&eacute;'>&eacute;</a>", "<a title='&eacute;'>é</a>"),
        ("<script>'&eacute;'</script><!-- &eacute; --> <pre>&eacute;</pre>", None),
    ],
)
def test_letters_are_read_and_what_may_be_markup_stays(page, expected):
    assert without_references(page) == (expected or page)


def test_code_of_templates_stays():
    page = "<p>hi <%= name %>: <% if a > b %>so<% end %> <?php echo '<b>x</b>' ?> now <?= $x ?></p>"
    seen = []
    assert translated(page, lambda texts: seen.extend(texts) or texts) == page
    assert seen == ["hi {x0}: <x1/>so<x2/> <x3/> now {x4}"]
    expected = page.replace(">hi", ">HI").replace(">so", ">SO").replace("now", "NOW")
    assert translated(page) == expected


@pytest.mark.parametrize("name", ["utf-16", "utf-7", "idna", "undefined", "no-such", "rot13"])
def test_an_encoding_that_no_page_can_name_is_ignored_as_by_browsers(name):
    page = f"<meta charset={name}><p>word</p>"
    for text in (page, f"{page} "):  # an even and an odd number of bytes
        result = translate_html(job(text, "a.html", lambda texts: ["größer" for _ in texts]))
        assert result.decode() == text.replace("word", "größer")


def test_letters_that_the_encoding_lacks_become_entities():
    page = b"<meta charset=windows-1252><p>word</p>"
    result = translate_html(job(page, "a.html", lambda texts: ["слово" for _ in texts]))
    assert b"<p>&#1089;&#1083;" in result


def test_an_undeclared_encoding_is_that_of_browsers_and_a_false_one_is_refused():
    assert translate_html(job(b"<p>caf\xe9</p>", "a.html")) == b"<p>CAF\xc9</p>"
    with pytest.raises(InputError, match="not UTF-8"):
        translate_html(job(b"<meta charset=utf-8><p>caf\xe9</p>", "a.html"))


@pytest.mark.parametrize(
    "page",
    [
        "<p>a <b",
        "<p>a <!-- b",
        "a < b",
        "<svg><svg>a</svg>",
        "</ x>a",
        "a <% b",
        "<p title=it's>a</p>",
    ],
)
def test_broken_pages_keep_all_their_characters(page):
    assert translated(page, list) == page
    assert translated(page).lower().replace("&lt;", "<") == page


@given(
    st.lists(
        st.sampled_from(
            [
                "<b>",
                "</b>",
                "<i>",
                "</i>",
                "<p>",
                "<br>",
                "a",
                " ",
                "&lt;",
                "<code>",
                "</code>",
                "<!--c-->",
                "'",
                '"',
                "<",
            ]
        )
    )
)
def test_any_markup_comes_back(parts):
    page = "".join(parts)
    assert translated(page, list) == page
    changed = translated(page, backwards)
    tags = r"<[a-z/!][^<>]*>"
    assert sorted(re.findall(tags, changed)) == sorted(re.findall(tags, page))


@pytest.mark.parametrize(
    "part",
    ["<a ", "<b>", "<!--", "<%", "<?", '<a b="', "<code>", "</i>", "&", "<svg>", "<a b='c\""],
)
def test_hostile_pages_take_linear_time(part):
    start = time.process_time()
    translated(part * (100_000 // len(part)), list)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("page", ["<!-- >" * 40_000, "<pre>" + "<pre " * 200_000])
def test_what_is_never_closed_takes_linear_time(page):
    start = time.process_time()
    assert translated(page, list) == page
    assert time.process_time() - start < 5


def test_an_unclosed_comment_ends_with_the_page():
    assert translated("<p>one</p><!-- > two <p>three</p>", capitals) == (
        "<p>ONE</p><!-- > two <p>three</p>"
    )


def test_the_name_of_an_element_may_have_any_character():
    page = '<p(+ translate="no">one</p(+><p>two</p>'
    assert translated(page, capitals) == page.replace("two", "TWO")


def test_only_its_own_tags_close_an_element():
    page = "<code>a<code-block>b</code> two"
    assert translated(page, capitals) == page.replace("two", "TWO")
