"""What a file is: its format by its suffix, and by its first bytes whether it is text at all."""

from __future__ import annotations

from pathlib import Path

from transduce.data.readers.compression import blocks, compression_of, is_compressed, plain_suffix
from transduce.errors import InputError

# The function for each suffix; its module is only imported when it is used.
FORMATS = {
    ".txt": "plain_text.translate_plain_text",
    ".srt": "subtitles.translate_subtitles",
    ".vtt": "subtitles.translate_subtitles",
    ".html": "html.translate_html",
    ".htm": "html.translate_html",
    ".docx": "docx.translate_docx",
    ".odt": "odt.translate_odt",
    ".po": "po.translate_po",
    ".pot": "po.translate_po",
    ".tmx": "tmx.translate_tmx",
    ".xlf": "xliff.translate_xliff",
    ".xliff": "xliff.translate_xliff",
}
ARCHIVES = (".docx", ".odt")  # formats that are not text
# Documents that no text may be written into, though they cannot be translated either.
_OTHER_DOCUMENTS = {
    ".pdf",
    ".doc",
    ".rtf",
    ".ppt",
    ".pptx",
    ".xls",
    ".xlsx",
    ".epub",
    ".odp",
    ".ods",
}

# How files that are not text begin.
_KINDS = {
    b"%PDF-": "a PDF file",
    b"PK\x03\x04": "a ZIP container such as .pptx, .xlsx or .epub",
    b"\xd0\xcf\x11\xe0": "an old or protected file of Microsoft Office",
    b"{\\rtf": "an RTF file",
    b"\x89PNG\r\n": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF87a": "a picture",
    b"GIF89a": "a picture",
    b"II*\x00": "a picture",
    b"MM\x00*": "a picture",
}


def is_document(path: Path) -> bool:
    """Return whether a file has a format with markup, by its suffix."""
    return path.suffix.lower() in FORMATS and path.suffix.lower() != ".txt"


def refuse_compressed_document(path: Path) -> None:
    """Refuse a document such as a.po.gz; text may be compressed."""
    # A suffix in capitals is read as one, too.
    name = Path(path.name.lower())
    if is_compressed(name) and is_document(Path(name.stem)):
        raise InputError(f"{path.name} is a compressed document; decompress it first")


def refuse_other_output(source: Path | None, target: Path) -> None:
    """Refuse to write lines of text into a file whose suffix says that it is a document."""
    suffix = plain_suffix(Path(target.name.lower()))
    is_other = is_document(Path(f"a{suffix}")) or suffix in _OTHER_DOCUMENTS
    if is_other and (source is None or suffix != plain_suffix(Path(source.name.lower()))):
        name = source.name if source else "stdin"
        raise InputError(
            f"{target.name} has the suffix of a document, but {name} is text; choose another "
            "suffix such as .txt, or add --format text"
        )


def refuse_other_file(path: Path) -> None:
    """Refuse a file to translate line by line that is not text; a pipe is not read."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected a text file")
    if path.is_file():
        refuse_other_content(next(blocks(path), b""), path.name)


def refuse_other_content(data: bytes, name: str) -> None:
    """Refuse content that begins as a file does that is not text."""
    if compression_of(data):
        raise InputError(f"{name} is a compressed document; decompress it first")
    for start, kind in _KINDS.items():
        if data.startswith(start):
            known = ", ".join(FORMATS)
            raise InputError(f"{name} is {kind}, not text; convert it to one of {known}")
