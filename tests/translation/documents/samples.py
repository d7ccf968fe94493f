"""Files to translate, and a function that translates by writing words in capitals."""

import io
import re
import zipfile

from transduce.translation.documents.job import Job

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_KEPT = re.compile(r"(<[^<>]*>|\{[^{}]*\}|%\w)")


def capitals(texts):
    """Translate: everything but tags and placeholders in capitals."""
    results = []
    for text in texts:
        parts = _KEPT.split(text)
        results.append("".join(part if _KEPT.fullmatch(part) else part.upper() for part in parts))
    return results


def backwards(texts):
    """Translate: the words and tags of each text in the opposite order, tags still balanced."""
    results = []
    for text in texts:
        parts = re.findall(r"<[^<>]*>|\{[^{}]*\}|[^\s<{]+", text)
        swapped = []
        for part in reversed(parts):
            if part.startswith("</"):
                swapped.append(part.replace("</", "<"))
            elif part.startswith("<") and not part.endswith("/>"):
                swapped.append(part.replace("<", "</"))
            else:
                swapped.append(part)
        results.append(" ".join(swapped))
    return results


def job(data, name, translate=capitals, languages=("en", "de")):
    return Job(data if isinstance(data, bytes) else data.encode(), name, translate, languages)


def packed(parts, compression=zipfile.ZIP_DEFLATED):
    """A ZIP archive; the first part is not compressed, as ODF demands."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for place, (name, content) in enumerate(parts.items()):
            info = zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6))
            info.compress_type = compression if place else zipfile.ZIP_STORED
            archive.writestr(info, content)
    return file.getvalue()


def unpacked(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def docx(body, **parts):
    document = f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    return packed(
        {
            "[Content_Types].xml": "<Types/>",
            "word/document.xml": document,
            "word/media/image1.png": b"\x89PNG\x00 not to be changed",
            **{f"word/{name}.xml": content for name, content in parts.items()},
        }
    )


ODT_NAMES = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)


def odt(body, **parts):
    content = f"<office:document-content {ODT_NAMES}><office:body><office:text>{body}</office:text></office:body></office:document-content>"
    return packed(
        {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content, **parts}
    )
