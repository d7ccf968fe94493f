"""Text documents of OpenOffice and LibreOffice (.odt)."""

from __future__ import annotations

from transduce.errors import InputError
from transduce.translation.documents.job import Job
from transduce.translation.documents.xml_content import (
    Content,
    Element,
    InlineRules,
    local_name,
    parse_xml,
    xml_bytes,
)
from transduce.translation.documents.zip_archive import Archive

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_PARTS = ("content.xml", "styles.xml")  # the second one has headers and footers
_MANIFEST = "META-INF/manifest.xml"
# Comments, and text that was deleted but is still shown as a change.
_UNTRANSLATED = {"annotation", "tracked-changes"}
_RULES = InlineRules(
    containers={"span", "a", "ruby", "ruby-base", "meta"},
    words={"page-number", "page-count", "date", "time", "sequence", "variable-get", "user-defined"},
    characters={"tab": "\t", "line-break": "\n"},
    collapses_space=True,
)


def translate_odt(job: Job) -> bytes:
    """Translate the paragraphs and headings of a document, its headers, footers and notes."""
    archive = Archive(job.data, job.name, job.most_bytes)
    if _MANIFEST in archive.names and b"encryption-data" in archive.read(_MANIFEST):
        raise InputError(f"{job.name} is protected by a password; save it without one")
    if "content.xml" not in archive.names:
        raise InputError(f"{job.name} is not an OpenDocument text: it has no content.xml")

    sources = {part: archive.read(part) for part in _PARTS if part in archive.names}
    job.check_tags(*sources.values())
    trees = {part: parse_xml(data, f"{job.name}: {part}") for part, data in sources.items()}
    contents = []
    for tree in trees.values():
        elements = filter(_is_translated, tree.iter(f"{_TEXT}p", f"{_TEXT}h"))
        contents += [Content(element, _RULES) for element in elements]

    job.translate_contents(contents)
    return archive.replaced({part: xml_bytes(trees[part], sources[part]) for part in trees})


def _is_translated(element: Element) -> bool:
    return not any(local_name(parent) in _UNTRANSLATED for parent in element.iterancestors())
