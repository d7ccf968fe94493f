"""Word documents: the text changes, formats and everything else stay."""

import re
import struct
import time
import tracemalloc
import zipfile
from dataclasses import replace

import pytest
from lxml import etree

from tests.translation.documents.samples import W, backwards, capitals, docx, job, packed, unpacked
from transduce.errors import InputError
from transduce.translation.documents.docx import translate_docx

STRICT = '<w:document xmlns:w="http://purl.oclc.org/ooxml/wordprocessingml/main"/>'
DOCTYPE = f'<!DOCTYPE a SYSTEM "a.dtd"><w:document xmlns:w="{W}">&e;</w:document>'
DOUBLE = packed({"word/document.xmL": "<a/>", "word/document.xml": "<a/>"}).replace(
    b".xmL", b".xml"
)


def run(text, style=""):
    properties = f"<w:rPr>{style}</w:rPr>" if style else ""
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def translated(body, translate=capitals, part="word/document.xml", **parts):
    data = translate_docx(job(docx(body, **parts), "a.docx", translate))
    root = etree.fromstring(unpacked(data)[part])
    text = etree.tostring(root, encoding="unicode")
    return (
        re.sub(r' xmlns:w="[^"]*"| xml:space="preserve"', "", text)
        .partition("<w:body>")[2]
        .partition("</w:body>")[0]
    )


def test_bold_words_stay_bold_wherever_they_go():
    body = f"<w:p>{run('see the ')}{run('red', '<w:b/>')}{run(' house')}</w:p>"
    assert translated(body) == (
        "<w:p><w:r><w:t>SEE THE </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>RED</w:t></w:r>"
        "<w:r><w:t> HOUSE</w:t></w:r></w:p>"
    )
    moved = translated(body, backwards)
    assert "<w:r><w:rPr><w:b/></w:rPr><w:t> red </w:t></w:r>" in moved
    assert re.sub("<[^<>]*>", "", moved).split() == ["house", "red", "the", "see"]


def test_a_word_that_word_splits_into_runs_is_translated_as_one():
    seen = []
    body = f"<w:p>{run('trans', '<w:lang w:val=`en`/>'.replace('`', chr(34)))}<w:proofErr/>{run('late')}</w:p>"
    translated(body, lambda texts: seen.extend(texts) or texts)
    assert seen == ["translate"]


def test_the_format_of_the_paragraph_is_that_of_most_of_its_text():
    seen = []
    body = f"<w:p>{run('a')}{run(' long title', '<w:b/>')}</w:p>"
    translated(body, lambda texts: seen.extend(texts) or texts)
    assert seen == ["<x0>a</x0> long title"]


def test_links_tabs_breaks_and_properties_are_kept():
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr>'
        f'{run("see ")}<w:hyperlink w:anchor="x">{run("this page", "<w:u/>")}</w:hyperlink>'
        "<w:r><w:tab/><w:t>one</w:t><w:br/><w:t>two</w:t></w:r></w:p>"
    )
    assert translated(body) == (
        '<w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr><w:r><w:t>SEE </w:t></w:r>'
        '<w:hyperlink w:anchor="x"><w:r><w:rPr><w:u/></w:rPr><w:t>THIS PAGE</w:t></w:r></w:hyperlink>'
        "<w:r><w:tab/><w:t>ONE</w:t><w:br/><w:t>TWO</w:t></w:r></w:p>"
    )


def test_pictures_notes_and_fields_stay_in_the_sentence():
    field = (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>PAGE</w:instrText></w:r>'
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>seven</w:t></w:r>'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    note = '<w:r><w:rPr><w:vertAlign/></w:rPr><w:footnoteReference w:id="2"/></w:r>'
    body = f"<w:p>{run('on page ')}{field}{run(' we')}{note}{run(' see it')}</w:p>"
    result = translated(body)
    assert field in result, "the result of a field is not translated"
    assert note in result
    assert re.sub("<[^<>]*>", "", result) == "ON PAGE PAGEseven WE SEE IT"


def test_the_text_of_a_link_field_is_translated():
    body = (
        '<w:p><w:r><w:t>see </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        '<w:r><w:instrText>HYPERLINK "https://x.org"</w:instrText></w:r>'
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>this</w:t></w:r>'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
    )
    assert translated(body) == body.replace("see", "SEE").replace("this", "THIS")


def test_text_boxes_tables_and_controls_are_translated_once():
    box = (
        f"<w:r><w:pict><w:txbxContent><w:p>{run('in the box')}</w:p></w:txbxContent></w:pict></w:r>"
    )
    table = f"<w:tbl><w:tr><w:tc><w:p>{run('cell')}</w:p></w:tc></w:tr></w:tbl>"
    control = (
        f"<w:sdt><w:sdtPr><w:tag/></w:sdtPr><w:sdtContent>{run('choice')}</w:sdtContent></w:sdt>"
    )
    body = f"<w:p>{run('outside')}{box}{control}</w:p>{table}"
    changed = translated(body)
    for text in ("in the box", "outside", "cell", "choice"):
        body = body.replace(text, text.upper())
    assert changed == body.replace(' xml:space="preserve"', "")


def test_deleted_text_stays_and_inserted_text_is_translated():
    body = f'<w:p>{run("a ")}<w:ins w:id="1">{run("new")}</w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>{run(" text")}</w:p>'
    changed = translated(body)
    assert "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>" in changed
    assert '<w:ins w:id="1"><w:r><w:t>NEW</w:t></w:r></w:ins>' in changed


def test_headers_footers_and_notes_are_translated_and_other_parts_are_not():
    def part(text):
        return f'<w:x xmlns:w="{W}"><w:body><w:p>{run(text)}</w:p></w:body></w:x>'

    names = ["header1", "footer2", "footnotes", "endnotes"]
    source = docx(
        f"<w:p>{run('text')}</w:p>", comments=part("c"), **dict.fromkeys(names, part("h"))
    )
    before = unpacked(source)
    after = unpacked(translate_docx(job(source, "a.docx")))
    assert list(before) == list(after), "the order of the parts"
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"word/document.xml", *(f"word/{name}.xml" for name in names)}
    assert after["word/document.xml"] == before["word/document.xml"].replace(b"text<", b"TEXT<")


@pytest.mark.parametrize("comment", ["<!-- c -->", "<?note c?>"])
def test_comments_of_xml_are_allowed_in_any_place(comment):
    """Behind some of them, lxml would end the process."""
    body = f"<w:p><w:r><w:rPr><w:b/>{comment}</w:rPr><w:t>one {comment}two</w:t></w:r>{comment}{run(' three')}</w:p>"
    assert translated(body) == translated(body.replace(comment, ""))
    assert "THREE" in translated(body)


def test_a_paragraph_without_words_is_not_touched():
    body = f"<w:p>{run('3', '<w:b/>')}<w:proofErr/>{run('.')}</w:p><w:p/>"
    data = docx(body)
    assert unpacked(translate_docx(job(data, "a.docx"))) == unpacked(data)


def test_characters_that_xml_does_not_allow_are_left_out():
    changed = translated(f"<w:p>{run('a')}</w:p>", lambda _: ["b\0\x1f\ud800c"])
    assert changed == "<w:p><w:r><w:t>bc</w:t></w:r></w:p>"


def test_fields_that_never_end_take_linear_time():
    begin = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
    start = time.process_time()
    translated(f"<w:p>{begin * 20_000}{run('a')}</w:p>", list)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a.docx is damaged, or not of the kind that its name says"),
        (b"PK\x03\x04 no archive", "a.docx is damaged"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "protected by a password, or in an old format"),
        (packed({"a": ""}), "it has no word/document.xml"),
        (packed({"word/document.xml": "<a"}), "a.docx: word/document.xml is damaged"),
        (packed({"word/document.xml": STRICT}), "save it as a Word Document (.docx)"),
        (packed({"word/document.xml": DOCTYPE}), "a.docx is damaged: it has a DOCTYPE"),
        (DOUBLE, "a.docx is damaged: it has two parts of the same name"),
        (docx("")[:200] + b"\0" * 40 + docx("")[240:], "a.docx"),
    ],
)
def test_a_damaged_document_is_refused_in_one_line(data, message):
    with pytest.raises(InputError, match=re.escape(message)) as error:
        translate_docx(job(data, "a.docx"))
    assert "\n" not in str(error.value)


def test_an_archive_that_unpacks_to_too_much_is_refused():
    bomb = docx("", bomb=b"0" * 2_000_000)
    assert len(bomb) < 10_000
    with pytest.raises(InputError, match="unpacks to 2,000,"):
        translate_docx(replace(job(bomb, "a.docx"), most_bytes=1_000_000))


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_part_that_is_larger_than_it_declares_is_not_unpacked(compression):
    parts = {"first": b"", "word/document.xml": b" " * 50_000_000}
    data = bytearray(packed(parts, compression))
    for header, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # of the size
        struct.pack_into("<I", data, data.rindex(header) + place, 1_000)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"is damaged|compressed"):
            translate_docx(job(bytes(data), "a.docx"))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_entities_are_never_expanded(tmp_path):
    (tmp_path / "secret").write_text("secret")
    for declared in (f'SYSTEM "{tmp_path}/secret"', '"internal"'):
        text = f'<!DOCTYPE a [<!ENTITY e {declared}>]><w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>&e;</w:t></w:r></w:p></w:body></w:document>'
        with pytest.raises(InputError, match="declares XML entities"):
            translate_docx(job(packed({"word/document.xml": text}), "a.docx"))
