"""Documents of Microsoft Word (.docx)."""

from __future__ import annotations

import re

from transduce.errors import InputError, require
from transduce.translation.documents.docx_paragraph import WORD, Paragraph
from transduce.translation.documents.job import Job
from transduce.translation.documents.xml_content import parse_xml, xml_bytes
from transduce.translation.documents.zip_archive import Archive

_PARTS = re.compile(r"word/(?:document|header|footer|footnotes|endnotes)\d*\.xml")


def translate_docx(job: Job) -> bytes:
    """Translate all paragraphs: of the text, tables, text boxes, headers, footers and notes."""
    archive = Archive(job.data, job.name, job.most_bytes)
    parts = [part for part in archive.names if _PARTS.fullmatch(part)]
    if not any(part.startswith("word/document") for part in parts):
        raise InputError(f"{job.name} is not a Word document: it has no word/document.xml")

    sources = {part: archive.read(part) for part in parts}
    job.check_tags(*sources.values())
    trees = {part: parse_xml(data, f"{job.name}: {part}") for part, data in sources.items()}
    if any(not tree.getroot().tag.startswith(WORD) for tree in trees.values()):
        raise InputError(
            f"{job.name} is not in the usual format of Word; save it as a Word Document (.docx), "
            "not as a Strict Open XML Document"
        )

    # Comments and entities may be in any place, and on some lxml ends the process. Word ignores
    # comments; entities need a DOCTYPE, with which it opens no document.
    etree = require("lxml.etree", extra="documents")
    paragraphs = []
    for tree in trees.values():
        if tree.docinfo.doctype:
            raise InputError(f"{job.name} is damaged: it has a DOCTYPE, as no Word document has")
        etree.strip_tags(tree, etree.Comment, etree.ProcessingInstruction)
        paragraphs += [Paragraph(element) for element in tree.iter(f"{WORD}p")]

    job.translate_contents(paragraphs)
    return archive.replaced({part: xml_bytes(trees[part], sources[part]) for part in parts})
