"""Documents through a real model, from Python and from the command line."""

import contextlib
import gzip
import io
import re
import sys
from pathlib import Path

import pytest

from tests.translation.documents.samples import docx, odt, packed, unpacked
from tests.translation.documents.test_html import PAGE
from transduce.cli.commands import run
from transduce.errors import InputError, MissingExtra
from transduce.translation import documents
from transduce.translation.documents import translate_document
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(bundle):
    return Translator(bundle, engine="torch")


def translated(translator, folder, name, content):
    source = folder / name
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    target = folder / f"new-{name}"
    translate_document(translator, source, target)
    return target.read_bytes()


def test_a_real_model_keeps_the_markup_of_a_page(translator, tmp_path, sentences):
    page = PAGE.replace("read on", sentences[0])
    result = translated(translator, tmp_path, "a.html", page).decode()
    assert result != page
    tags = r"<!--.*?-->|<script.*?</script>|<[^<>]*>"
    without_attributes = re.compile(r'(content|title|alt|value)=("[^"]*"|\'[^\']*\')')
    kept = [
        sorted(without_attributes.sub("", tag) for tag in re.findall(tags, text, re.DOTALL))
        for text in (page, result.replace('<html lang="de">', '<html lang="en">'))
    ]
    assert kept[0] == kept[1]


def test_a_text_is_translated_as_the_translator_does(translator, tmp_path, sentences):
    first, second = sentences[:2]
    german = [translation.text for translation in translator.translate([first, second])]
    name_and_content = {
        "a.txt": f"\ufeff  {first}\r\n\r\n{second}\r\n",
        "a.srt": f"1\n00:00:01,000 --> 00:00:02,000\n{first}\n\n2\n00:00:03,000 --> 00:00:04,000\n{second}\n",
        "a.docx": docx(f"<w:p><w:r><w:t>{first}</w:t></w:r></w:p><w:p><w:r><w:t>{second}</w:t></w:r></w:p>"),
        "a.odt": odt(f"<text:p>{first}</text:p><text:p>{second}</text:p>"),
        "a.po": f'msgid ""\nmsgstr ""\n\nmsgid "{first}"\nmsgstr ""\n\nmsgid "{second}"\nmsgstr ""\n',
        "a.tmx": f'<tmx><tu><tuv xml:lang="en"><seg>{first}</seg></tuv></tu><tu><tuv xml:lang="en"><seg>{second}</seg></tuv></tu></tmx>',
        "a.xlf": f'<xliff version="1.2"><trans-unit><source>{first}</source></trans-unit><trans-unit><source>{second}</source></trans-unit></xliff>',
    }  # fmt: skip
    for name, content in name_and_content.items():
        result = translated(translator, tmp_path, name, content)
        parts = [result] if name[-4:] not in ("docx", ".odt") else unpacked(result).values()
        text = b"\n".join(parts).decode(errors="replace")
        assert all(" ".join(line.split()) in " ".join(text.split()) for line in german), name


def test_layout_and_byte_order_mark_of_plain_text_stay(translator, tmp_path, sentences):
    german = translator.translate(sentences[0]).text
    result = translated(translator, tmp_path, "a.txt", f"\ufeff  {sentences[0]}\r\n\r\n --- \r\n")
    assert result.decode() == f"\ufeff  {german}\r\n\r\n --- \r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_command_line_writes_the_same_text_as_a_server(
    translator, bundle, tmp_path, sentences, encoding
):
    first, second = sentences[:2]
    text = f"  {first}\r\n\r\n{second}\n\t{first} {second}\r{second}".encode(encoding)
    expected = translated(translator, tmp_path, "a.txt", text)
    command = ["translate", "--model", str(bundle.path), "--engine", "torch", "--input"]
    files = [str(tmp_path / "a.txt"), "--output", str(tmp_path / "b.txt")]
    assert run([*command, *files]) == 0
    assert (tmp_path / "b.txt").read_bytes() == expected


def test_text_without_a_mark_that_looks_like_utf16_is_refused(translator, tmp_path):
    with pytest.raises(InputError, match=r"^a\.txt:1 is not UTF-8 but looks like UTF-16LE"):
        translated(translator, tmp_path, "a.txt", "the dog\n".encode("utf-16-le"))


def test_a_text_that_is_repeated_is_translated_once(translator, tmp_path, monkeypatch):
    calls = []
    original = Translator.translate
    monkeypatch.setattr(
        Translator, "translate", lambda self, texts: calls.append(texts) or original(self, texts)
    )
    translated(translator, tmp_path, "a.html", "<p>one</p><p>two</p><p>one</p>")
    assert calls == [["one", "two"]]


def test_the_output_appears_only_when_it_is_complete(translator, tmp_path):
    target = tmp_path / "b.docx"
    target.write_text("old")
    (tmp_path / "a.docx").write_text("damaged")
    with pytest.raises(InputError):
        translate_document(translator, tmp_path / "a.docx", target)
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.docx", "b.docx"]


def test_wrong_files_are_refused(translator, tmp_path, monkeypatch):
    page = tmp_path / "a.html"
    page.write_text("<p>a</p>")
    for source, target, message in [
        (
            page,
            "b.docx",
            r"a\.html cannot be translated into b\.docx: both must have the same suffix",
        ),
        (page, "a.html", "both the input and the output"),
        (page, "none/b.html", "is not a folder"),
        (tmp_path / "c.html", "b.html", "is not a file"),
        (tmp_path / "c.pdf", "b.pdf", r"suffix '\.pdf'; expected one of \.txt, \.srt"),
    ]:
        with pytest.raises(InputError, match=message):
            translate_document(translator, source, tmp_path / target)
    monkeypatch.setattr(documents, "MOST_BYTES", 5)
    with pytest.raises(InputError, match="has 8 bytes; expected at most 5"):
        translate_document(translator, page, tmp_path / "b.html")


@pytest.mark.parametrize(("name", "library"), [("a.xlf", "lxml.etree"), ("a.po", "polib")])
def test_a_missing_library_is_named_with_its_extra(
    translator, tmp_path, monkeypatch, name, library
):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[documents\]"):
        translated(translator, tmp_path, name, "<xliff/>")


def test_the_command_translates_a_document(bundle, tmp_path, sentences, capsys):
    page = tmp_path / "a.html"
    page.write_text(f"<p>{sentences[0]}</p>\n")
    command = ["translate", "--model", str(bundle.path), "--input", str(page)]
    assert run([*command, "--output", str(tmp_path / "b.html")]) == 0
    result = (tmp_path / "b.html").read_text()
    assert result.startswith("<p>")
    assert sentences[0] not in result
    # As text, every line is translated for itself, whatever the suffix of the output is.
    assert run([*command, "--output", str(tmp_path / "c.txt"), "--format", "text"]) == 0
    assert (tmp_path / "c.txt").read_text().startswith("<p>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "a.html is a document and needs --output"),
        (["--output", "b.html", "--scores"], "a.html is translated as a document, without"),
        (["--output", "b.docx"], "both must have the same suffix"),
        (["--output", "new"], "new is a folder; expected a file such as new/a.html"),
        (["--output", "new.html"], "new.html is a folder; expected a file such as"),
        (["--input", "new", "--output", "b.txt"], "new is a folder; expected a text file"),
        (["--input", ".", "--output", "b.html"], ". is a folder; expected a text file"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_the_model_is_loaded(
    tmp_path, monkeypatch, capsys, options, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.html").write_text("<p>a</p>")
    (tmp_path / "new").mkdir()
    (tmp_path / "new.html").mkdir()
    assert run(["translate", "--model", "none", "--input", "a.html", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.po.gz", "a.SRT.GZ", "a.xlf.xz", "a.html.bz2", "a.docx.zst"])
def test_a_compressed_document_is_refused(translator, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(gzip.compress(b'msgid "a"\nmsgstr ""\n'))
    expected = f"{name} is a compressed document; decompress it first"
    with pytest.raises(InputError, match=re.escape(expected)):
        translate_document(translator, name, f"new-{name}")
    command = ["translate", "--model", "none", "--input", name, "--output"]
    for output in (f"new-{name}", "b.txt"):
        assert run([*command, output]) == 2
        assert capsys.readouterr().err == f"transduce: {expected}\n"
    # Also if the name does not say it.
    Path("a.po").write_bytes(Path(name).read_bytes())
    with pytest.raises(InputError, match=r"^a\.po is a compressed document"):
        translate_document(translator, "a.po", "b.po")


def test_compressed_text_is_translated(bundle, tmp_path, monkeypatch, sentences):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(f"{sentences[0]}\n")
    Path("a.txt.gz").write_bytes(gzip.compress(Path("a.txt").read_bytes()))
    command = ["translate", "--model", str(bundle.path), "--engine", "torch"]
    assert run([*command, "--input", "a.txt", "--output", "b.txt"]) == 0
    assert run([*command, "--input", "a.txt.gz", "--output", "b.txt.gz"]) == 0
    assert gzip.decompress(Path("b.txt.gz").read_bytes()) == Path("b.txt").read_bytes()


OTHER_CONTENT = [
    ("a.pdf", b"%PDF-1.4\nonly ASCII\n", "a PDF file"),
    ("a.pptx", packed({"ppt/presentation.xml": "<p/>"}), "a ZIP container such as .pptx"),
    ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1", "an old or protected file of Microsoft Office"),
    ("a.rtf", b"{\\rtf1 The dog}", "an RTF file"),
    ("a.png", b"\x89PNG\r\n\x1a\n", "a picture"),
    ("a.jpg", b"\xff\xd8\xff\xe0", "a picture"),
]


@pytest.mark.parametrize(("name", "content", "kind"), OTHER_CONTENT)
def test_a_file_that_is_not_text_is_refused(
    translator, tmp_path, monkeypatch, capsys, name, content, kind
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    Path(f"{name}.gz").write_bytes(gzip.compress(content))
    for options in (["--output", name.replace("a.", "b.")], ["--errors", "replace"]):
        for given in (name, f"{name}.gz"):
            assert run(["translate", "--model", "none", "--input", given, *options]) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"transduce: {given} is {kind}")
            assert ", not text; convert it to one of .txt, .srt" in error
            assert error.count("\n") == 1
    # Whatever its name says.
    for wrong in ("a.txt", "a.html", "a.po"):
        Path(wrong).write_bytes(content)
        with pytest.raises(InputError, match=f"^{wrong} is {kind}.*, not text"):
            translate_document(translator, wrong, wrong.replace("a.", "b."))


def test_standard_input_that_is_not_text_is_refused(bundle, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"%PDF-1.4\nonly ASCII\n")))
    assert run(["translate", "--model", str(bundle.path), "--engine", "torch"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert "transduce: stdin is a PDF file, not text; convert it" in error


@pytest.mark.parametrize("output", ["y.docx", "y.HTML", "y.po.gz", "y.pdf"])
def test_text_is_not_written_into_a_document(tmp_path, monkeypatch, capsys, output):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a\n")
    command = ["translate", "--model", "none", "--output", output]
    for options, name in ((["--input", "a.txt"], "a.txt"), ([], "stdin")):
        assert run([*command, *options]) == 2
        expected = f"{output} has the suffix of a document, but {name} is text; choose another"
        assert expected in capsys.readouterr().err
    run([*command, "--input", "a.txt", "--format", "text"])
    assert "has the suffix of a document" not in capsys.readouterr().err


def test_the_command_line_shows_how_much_of_a_document_is_translated(bundle, tmp_path, monkeypatch):
    shown = []

    @contextlib.contextmanager
    def progress(title, total):
        shown.append((title, total))
        yield shown.append

    monkeypatch.setattr(documents, "progress", progress)
    page = tmp_path / "a.html"
    page.write_text("<p>42 hours</p><p>7 minutes</p>")
    command = ["translate", "--model", str(bundle.path), "--engine", "torch", "--input", str(page)]
    assert run([*command, "--output", str(tmp_path / "b.html")]) == 0
    assert shown == [("a.html", 17), 8, 9]
