"""Files of translators: .po, .tmx, .xlf."""

import polib
import pytest
from lxml import etree

from tests.translation.documents.samples import backwards, capitals, job
from transduce.errors import InputError
from transduce.translation.documents.po import translate_po
from transduce.translation.documents.tmx import translate_tmx
from transduce.translation.documents.xliff import translate_xliff

PO = """# A comment
msgid ""
msgstr ""
"Language: \\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=(n%10==1 ? 0 : 1);\\n"

#. for translators
#: main.c:12
#, c-format
msgid "open %s now\\n"
msgstr ""

msgctxt "menu"
msgid "file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#, fuzzy
msgid "old"
msgstr "alt"

msgid "done"
msgstr "Fertig"

#~ msgid "gone"
#~ msgstr ""
"""


def test_messages_without_a_translation_get_one():
    result = translate_po(job(PO, "a.po")).decode()
    entries = {entry.msgid: entry for entry in polib.pofile(result)}
    assert entries["open %s now\n"].msgstr == "OPEN %s NOW\n"
    assert entries["file"].msgstr_plural == {0: "FILE", 1: "%d FILES", 2: "%d FILES"}
    assert entries["old"].msgstr == "alt"
    assert entries["old"].fuzzy
    assert entries["done"].msgstr == "Fertig"
    assert entries["gone"].obsolete
    expected = (
        PO.replace('now\\n"\nmsgstr ""', 'now\\n"\nmsgstr "OPEN %s NOW\\n"')
        .replace("Language: ", "Language: de")
        .replace('[0] ""', '[0] "FILE"')
        .replace('[1] ""', '[1] "%d FILES"')
        .replace('[2] ""', '[2] "%d FILES"')
    )
    assert result == expected


@pytest.mark.parametrize(
    ("header", "languages", "expected"),
    [
        ('"Language: fr\\n"\n', ("en", "de"), '"Language: de\\n"\n'),
        ("", ("en", "de"), '"Language: de\\n"\n'),
        ('"Language: de_AT\\n"\n', ("en", "de"), '"Language: de_AT\\n"\n'),
        ('"Language: \\n"\n', ("en", "pt-BR"), '"Language: pt_BR\\n"\n'),
        ('"Language: fr\\n"\n', ("", ""), '"Language: fr\\n"\n'),
    ],
)
def test_a_catalogue_names_the_target_language(header, languages, expected):
    start = 'msgid ""\nmsgstr ""\n'
    end = '"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "a"\nmsgstr "'
    result = translate_po(job(f'{start}{header}{end}"\n', "a.po", languages=languages)).decode()
    assert result == f'{start}{expected}{end}A"\n'


def test_a_catalogue_with_translations_into_another_language_is_refused():
    text = 'msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "a"\nmsgstr ""\n\nmsgid "b"\nmsgstr "B"\n'
    for header in (text, text.replace("fr\\n", "fr\\nno field\\n")):
        with pytest.raises(InputError, match=r"a\.po has translations with Language: fr; expected"):
            translate_po(job(header, "a.po"))


def test_a_catalogue_without_a_header_names_no_language():
    assert b"Language" not in translate_po(job('msgid "a"\nmsgstr ""\n', "a.po"))


def test_a_catalogue_without_a_comment_gets_none():
    text = PO.partition("\n")[2].replace("Language: ", "Language: de")
    assert translate_po(job(text, "a.po", list)).decode().startswith('msgid ""\n')


def test_a_catalogue_keeps_its_line_ends_and_encoding():
    text = PO.replace("UTF-8", "ISO-8859-1").replace("Fertig", "für").replace("\n", "\r\n")
    result = translate_po(job(text.encode("latin-1"), "a.po"))
    assert "für".encode("latin-1") in result
    assert result.count(b"\r\n") == result.count(b"\n")


@pytest.mark.parametrize("name", ["no-such", "idna", "utf-16", "undefined"])
def test_an_encoding_that_no_catalogue_has_is_refused(name):
    with pytest.raises(InputError, match=f"unknown encoding {name}"):
        translate_po(job(PO.replace("UTF-8", name), "a.po"))


@pytest.mark.parametrize("charset", ["US-ASCII", "ISO-8859-1"])
def test_a_catalogue_whose_encoding_lacks_letters_of_the_translation_becomes_utf_8(charset):
    text = PO.replace("UTF-8", charset)
    result = translate_po(job(text, "a.po", lambda texts: ["дом" for _ in texts])).decode()
    assert "charset=UTF-8" in result
    assert 'msgstr "дом"' in result
    assert charset not in result


@pytest.mark.parametrize("data", [b"no catalogue", b"msgid \xff", b'"charset=no-such"'])
def test_a_damaged_catalogue_is_refused(data):
    with pytest.raises(InputError, match=r"a\.po") as error:
        translate_po(job(data, "a.po"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgid "a\nmsgstr x', "line 1 is 'msgid \"a'; expected a comment, or a keyword"),
        ('msgid "a"\nmsgstr x', "line 2 is 'msgstr x'"),
        ('msgid "The dog\nmsgstr ""', "line 1 is 'msgid \"The dog'"),
        ('msgid "a\\"\nmsgstr ""', "line 1 is"),
        ('msgid ""\n"The dog\nmsgstr ""', "line 2 is"),
        ('#~ msgid "gone\n#~ msgstr ""', "line 1 is"),
        ('#| msgid "old\nmsgid "new"\nmsgstr ""', "line 1 is"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] "x\nmsgstr[1] ""', "line 3 is"),
        ('msgid "a"\n\n# lost\nmsgid "b"\nmsgstr ""', "line 4 has msgid after msgid"),
        ('# lost\nmsgstr "b"', "line 2 has msgstr at the start"),
        ('msgid "a"\nmsgstr ""\n\nmsgid "b"', "the last message has no msgstr"),
    ],
)
def test_a_catalogue_that_would_lose_content_is_refused(text, message):
    with pytest.raises(InputError) as error:
        translate_po(job(text, "a.po"))
    assert str(error.value).startswith(f"a.po is damaged: {message}")
    assert "\n" not in str(error.value)


def test_all_that_a_catalogue_may_have_is_read():
    text = """# A comment
#
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

  #. indented
\tmsgctxt ""
  "a \\"menu\\" \\\\"
msgid "close"
msgstr ""

#, fuzzy
#| msgctxt "a"
#| msgid "previous "
#| "text"
#| msgid_plural "texts"
msgid "new"
msgid_plural "news"
msgstr[0] "a"
msgstr[1] "b"

#~| msgid "older"
#~ msgctxt "c"
#~ msgid "gone "
#~ "\\\\"
#~ msgstr ""
# the end
"""
    result = translate_po(job(text, "a.po")).decode()
    entries = {entry.msgid: entry for entry in polib.pofile(result)}
    assert entries["close"].msgstr == "CLOSE"
    assert entries["close"].msgctxt == 'a "menu" \\'
    assert entries["new"].previous_msgid == "previous text"
    assert entries["new"].msgstr_plural == {0: "a", 1: "b"}
    assert entries["gone \\"].obsolete


TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header srclang="en"/>
  <body>
    <tu tuid="1">
      <tuv xml:lang="en-US">
        <seg>a <hi>bold</hi> word<ph x="1">&lt;br/&gt;</ph> here</seg>
      </tuv>
    </tu>
    <tu tuid="2">
      <tuv xml:lang="en"><seg>done</seg></tuv>
      <tuv xml:lang="de"><seg>fertig</seg></tuv>
    </tu>
    <tu tuid="3">
      <tuv xml:lang="fr"><seg>seul</seg></tuv>
    </tu>
  </body>
</tmx>
"""


def test_units_get_the_target_language():
    result = translate_tmx(job(TMX, "a.tmx")).decode()
    source = TMX[TMX.index('      <tuv xml:lang="en-US">') : TMX.index("    </tu>")]
    added = (
        source.replace("en-US", "de").replace("a <hi>bold<", "A <hi>BOLD<")
        .replace(" word<", " WORD<").replace(" here", " HERE")
    )  # fmt: skip
    assert result == TMX.replace(source, source + added)


def test_a_memory_without_the_source_language_is_refused():
    with pytest.raises(InputError, match=r"has no 'ja'; it has de, en, en-US, fr"):
        translate_tmx(job(TMX, "a.tmx", languages=("ja", "de")))


XLIFF = """<?xml version="1.0" encoding="utf-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file source-language="en" original="a.txt">
    <body>
      <trans-unit id="1">
        <source>see <g id="1">the house</g> of <x id="2" equiv-text="{{name}}"/></source>
        <note>a note</note>
      </trans-unit>
      <trans-unit id="2"><source>done</source><target state="final">fertig</target></trans-unit>
      <trans-unit id="3" translate="no"><source>brand</source></trans-unit>
      <trans-unit id="4"><source>line<ph id="1">&lt;br&gt;</ph> two</source><target/></trans-unit>
    </body>
  </file>
</xliff>
"""


def test_empty_targets_are_filled():
    state = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
    expected = (
        XLIFF.replace(
            "</source>\n        <note>",
            f'</source>\n        <target {state}>SEE <g id="1">THE HOUSE</g> OF '
            '<x id="2" equiv-text="{{name}}"/></target>\n        <note>',
        )
        .replace("<target/>", f'<target {state}>LINE<ph id="1">&lt;br&gt;</ph> TWO</target>')
        .replace('original="a.txt"', 'original="a.txt" target-language="de"')
    )
    assert translate_xliff(job(XLIFF, "a.xlf")).decode() == expected


@pytest.mark.parametrize("mark", ['mtype="protected"', 'translate="no"'])
def test_text_that_is_marked_as_fixed_stays(mark):
    fixed = f"<mrk {mark}>the house</mrk>"
    text = XLIFF.replace('<g id="1">the house</g>', fixed)
    result = translate_xliff(job(text, "a.xlf")).decode()
    assert f">SEE {fixed} OF <" in result


def test_comments_inside_of_a_text_stay():
    text = XLIFF.replace("see <", "see<!-- a --> <?b?><")
    result = translate_xliff(job(text, "a.xlf")).decode()
    assert '>SEE<!-- a --> <?b?><g id="1">THE HOUSE</g>' in result


def test_placeholders_are_words_and_formats_are_tags():
    seen = []
    translate_xliff(job(XLIFF, "a.xlf", lambda texts: seen.extend(texts) or texts))
    assert seen == ["see <x0>the house</x0> of {x1}", "line<x0/> two"]


def test_version_two_is_filled_too():
    text = (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en"><file id="f">'
        '<unit id="1"><segment><source>a <pc id="1">bold</pc> word</source></segment></unit>'
        '<unit id="2" translate="no"><segment><source>brand</source></segment></unit></file></xliff>'
    )
    expected = (
        text.replace('srcLang="en"', 'srcLang="en" trgLang="de"')
        .replace("</source></segment></unit><unit", '</source><target>A <pc id="1">BOLD</pc> WORD</target></segment></unit><unit')
        .replace("<segment><source>a", '<segment state="translated"><source>a')
    )  # fmt: skip
    assert translate_xliff(job(text, "a.xlf")).decode() == expected
    moved = translate_xliff(job(text, "a.xlf", backwards))
    assert b'<target>word <pc id="1"> bold </pc> a</target>' in moved


VERSION_2 = '<xliff version="2.0" srcLang="en" trgLang="de"><file id="f"/></xliff>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (XLIFF.replace('"en"', '"fr"'), "source-language='fr'; expected 'en'"),
        (XLIFF.replace('"en"', '"en" target-language="es"'), "target-language='es'; expected 'de'"),
        (VERSION_2.replace('"en"', '"fr-FR"'), "srcLang='fr-FR'; expected 'en'"),
        (VERSION_2.replace('"de"', '"es"'), "trgLang='es'; expected 'de'"),
    ],
)
def test_a_file_of_other_languages_is_refused(text, message):
    with pytest.raises(InputError) as error:
        translate_xliff(job(text, "a.xlf"))
    assert str(error.value).startswith(f"a.xlf has {message}")
    assert translate_xliff(job(text, "a.xlf", languages=("", "")))


def test_a_region_of_the_language_is_the_same_language():
    regions = XLIFF.replace('"en"', '"EN-gb" target-language="de_CH"')
    assert b'source-language="EN-gb" target-language="de_CH"' in translate_xliff(
        job(regions, "a.xlf")
    )
    regions = VERSION_2.replace('"en"', '"en-US"').replace('"de"', '"de-AT"')
    assert translate_xliff(job(regions, "a.xlf")).decode() == regions


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_xml_keeps_its_encoding_and_line_ends(encoding):
    declared = encoding.removesuffix("-sig")
    text = XLIFF.replace('"utf-8"', f'"{declared}"').replace("a note", "für").replace("\n", "\r\n")
    result = translate_xliff(job(text.encode(encoding), "a.xlf"))
    assert "für" in result.decode(encoding)
    assert result[:4] == text.encode(encoding)[:4]
    etree.fromstring(result)
    if encoding != "utf-16":
        assert result.count(b"\r\n") == result.count(b"\n") == text.count("\n") + 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("<tmx/>", "is not XLIFF: it starts with <tmx>"),
        ("<xliff", "is damaged"),
        ("", "is damaged"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><xliff>&b;</xliff>', "declares XML entities"),
    ],
)
def test_other_xml_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        translate_xliff(job(data, "a.xlf", capitals))
