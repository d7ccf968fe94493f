"""OpenDocument texts: the text changes, styles and everything else stay."""

import zipfile

import pytest

from tests.translation.documents.samples import (
    ODT_NAMES,
    backwards,
    capitals,
    job,
    odt,
    packed,
    unpacked,
)
from transduce.errors import InputError
from transduce.translation.documents.odt import translate_odt


def translated(body, translate=capitals):
    content = unpacked(translate_odt(job(odt(body), "a.odt", translate)))["content.xml"].decode()
    return content.partition("<office:text>")[2].partition("</office:text>")[0]


def test_text_changes_and_styles_stay():
    body = (
        '<text:h text:style-name="H1" text:outline-level="1">one title</text:h>'
        '<text:p text:style-name="P1">see <text:span text:style-name="T1">the <text:span text:style-name="T2">red</text:span></text:span> '
        '<text:a href="x">house</text:a><text:tab/>and<text:line-break/>more</text:p>'
    )
    expected = body
    for text in ("one title", ">see ", ">the ", "red", "house<", ">and<", ">more"):
        expected = expected.replace(text, text.upper())
    assert translated(body) == expected


def test_spans_move_with_their_words():
    body = '<text:p>see <text:span text:style-name="T1">it</text:span> now</text:p>'
    assert (
        translated(body, backwards)
        == '<text:p>now <text:span text:style-name="T1"> it </text:span> see</text:p>'
    )


def test_notes_are_translated_once_and_comments_stay():
    body = (
        "<text:p>a word<text:note><text:note-citation>1</text:note-citation><text:note-body>"
        "<text:p>the note</text:p></text:note-body></text:note> and"
        "<office:annotation><text:p>a comment</text:p></office:annotation> more</text:p>"
    )
    expected = body
    for text in ("a word", "the note", "> and", "> more"):
        expected = expected.replace(text, text.upper())
    assert translated(body) == expected


def test_characters_that_xml_does_not_allow_are_left_out():
    assert translated("<text:p>a</text:p>", lambda _: ["b\0c"]) == "<text:p>bc</text:p>"


def test_a_line_end_in_the_file_is_a_space():
    seen = []
    translated("<text:p>one\n   sentence</text:p>", lambda texts: seen.extend(texts) or texts)
    assert seen == ["one sentence"]


def test_headers_change_and_the_archive_keeps_its_order(tmp_path):
    styles = f"<office:document-styles {ODT_NAMES}><text:p>header</text:p></office:document-styles>"
    source = odt("<text:p>text</text:p>", **{"styles.xml": styles, "Pictures/a.png": b"\x89PNG"})
    result = tmp_path / "a.odt"
    result.write_bytes(translate_odt(job(source, "a.odt")))
    with zipfile.ZipFile(result) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        assert archive.infolist()[1].compress_type == zipfile.ZIP_DEFLATED
    before = unpacked(source)
    after = unpacked(result.read_bytes())
    assert after["styles.xml"] == before["styles.xml"].replace(b"header<", b"HEADER<")
    assert after["Pictures/a.png"] == before["Pictures/a.png"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"a": ""}, "a.odt is not an OpenDocument text"),
        (
            {"content.xml": "x", "META-INF/manifest.xml": "<manifest:encryption-data/>"},
            "protected by a password",
        ),
        (
            {"encrypted-package": "x", "META-INF/manifest.xml": "<manifest:encryption-data/>"},
            "protected by a password",
        ),
        ({"content.xml": "<a>"}, "a.odt: content.xml is damaged"),
    ],
)
def test_other_archives_are_refused(parts, message):
    with pytest.raises(InputError, match=message):
        translate_odt(job(packed(parts), "a.odt"))
