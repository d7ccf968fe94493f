"""Message catalogues of gettext (.po): messages without a translation get one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from transduce.data.languages import base_language
from transduce.errors import InputError, require
from transduce.translation.documents.job import Job
from transduce.translation.documents.text_encoding import Encoding, decode, nameable

_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)")
_CHARSET = re.compile(rb"charset=([\w.:-]{1,40})", re.IGNORECASE)
_MOST_PLURALS = 10
_TEXT = r'"(?:[^"\\]|\\.)*"'
_LINE = re.compile(rf"(?:(msgctxt|msgid|msgid_plural|msgstr|msgstr\[\d\])\s*)?{_TEXT}")
_MARKER = re.compile(r"#~\|?\s+|#\|\s+")  # of an obsolete or a previous message
# What may come before each keyword; None is the start of the file.
_BEFORE = {
    "msgctxt": (None, "msgstr", "msgstr[]"),
    "msgid": (None, "msgctxt", "msgstr", "msgstr[]"),
    "msgid_plural": ("msgid",),
    "msgstr": ("msgid",),
    "msgstr[]": ("msgid_plural", "msgstr[]"),
}


def translate_po(job: Job) -> bytes:
    """Translate a catalogue. Translated, fuzzy and obsolete messages stay as they are."""
    catalogue, encoding, text = _parse(job)
    _set_language(catalogue, job)
    entries = [entry for entry in catalogue if _is_open(entry)]

    # The first form of a plural is the singular, all others are the plural.
    texts = [entry.msgid for entry in entries]
    texts += [entry.msgid_plural for entry in entries if entry.msgid_plural]
    translations = job.translate(texts)
    plurals = iter(translations[len(entries) :])
    forms = _plural_forms(catalogue)
    for entry, translation in zip(entries, translations, strict=False):
        if entry.msgid_plural:
            plural = next(plurals)
            entry.msgstr_plural = dict.fromkeys(range(forms), plural)
            entry.msgstr_plural[0] = plural if forms == 1 else translation
        else:
            entry.msgstr = translation

    try:
        return encoding.encode(_written(catalogue, text), "strict")
    except UnicodeEncodeError:
        # An encoding such as ASCII may lack letters of the new language.
        catalogue.metadata["Content-Type"] = "text/plain; charset=UTF-8"
        return _written(catalogue, text).encode()


def _written(catalogue: Any, text: str) -> str:
    """Return a catalogue as a file with the start and the line ends of the old one."""
    written = str(catalogue)
    if not text.lstrip("\ufeff").startswith("#"):
        written = written.removeprefix("#\n")  # the library's, for a comment that is not there
    if not written.endswith("\n"):
        written += "\n"
    if "\r\n" in text:
        written = written.replace("\r\n", "\n").replace("\n", "\r\n")
    return written


def _parse(job: Job) -> tuple[Any, Encoding, str]:
    """Return the catalogue, the encoding of its file, and its text."""
    polib = require("polib", extra="documents")
    declared = _CHARSET.search(job.data[:4096])
    name = declared[1].decode() if declared else "CHARSET"
    known = "utf-8" if name == "CHARSET" else nameable(name)
    if known is None:
        raise InputError(f"{job.name} declares the unknown encoding {name}; use UTF-8")
    text, encoding = decode(job.data, job.name, known)
    # The library takes a string of one line for the name of a file.
    content = text.replace("\r\n", "\n") + "\n\n"
    _check_lines(content, job.name)
    try:
        return polib.pofile(content), encoding, text
    except OSError as error:
        reason = str(error).removeprefix("Syntax error in po file ").partition("\n")[0]
        raise InputError(f"{job.name} is damaged: it is not a catalogue ({reason})") from None


def _check_lines(content: str, name: str) -> None:
    """Refuse a damaged catalogue, of which the library would lose letters or messages."""
    last = None
    for number, keyword in _keywords(content, name):
        if last not in _BEFORE[keyword]:
            place = f"after {last}" if last else "at the start"
            raise InputError(
                f"{name} is damaged: line {number} has {keyword} {place}; each message needs a "
                "msgid and then its msgstr"
            )
        last = keyword
    if last and not last.startswith("msgstr"):
        raise InputError(
            f"{name} is damaged: the last message has no msgstr; the file may be cut off"
        )


def _keywords(content: str, name: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the keyword of each text, also of obsolete messages."""
    for number, line in enumerate(content.splitlines(), 1):
        stripped = line.strip()
        marker = _MARKER.match(stripped)
        part = stripped[marker.end() :] if marker else stripped
        if not part or part.startswith("#"):
            continue
        found = _LINE.fullmatch(part)
        if not found:
            raise InputError(
                f"{name} is damaged: line {number} is {part!r:.60}; expected a comment, or a "
                "keyword such as msgid and a text in double quotes"
            )
        is_previous = marker is not None and "|" in marker[0]
        if found[1] and not is_previous:
            yield number, re.sub(r"\d", "", found[1])


def _set_language(catalogue: Any, job: Job) -> None:
    """Name the target language in the header, if there is one; a region of it stays.

    Refuse a catalogue with translations into another language.
    """
    language = job.languages[1]
    declared = catalogue.metadata.get("Language", "").partition("\n")[0]
    if not catalogue.metadata or not language:
        return
    if base_language(declared) == base_language(language):
        return
    if declared and any(entry.msgid and not _is_open(entry) for entry in catalogue):
        raise InputError(
            f"{job.name} has translations with Language: {declared:.40}; expected {language}: "
            "remove them, or correct the header"
        )
    catalogue.metadata["Language"] = language.replace("-", "_")


def _is_open(entry: Any) -> bool:
    """Return whether a message has no translation yet."""
    if entry.obsolete or entry.fuzzy or not entry.msgid:
        return False
    return not (entry.msgstr or any(entry.msgstr_plural.values()))


def _plural_forms(catalogue: Any) -> int:
    """Return how many plural forms the target language has, as the header says; else two."""
    found = _PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
    return min(max(int(found[1]), 1), _MOST_PLURALS) if found else 2
