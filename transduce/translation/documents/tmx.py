"""Translation memories (.tmx): units without the target language get it."""

from __future__ import annotations

import copy

from transduce.data.readers.columns import is_language
from transduce.errors import InputError
from transduce.translation.documents.job import Job
from transduce.translation.documents.xml_content import (
    XML,
    Content,
    Element,
    InlineRules,
    insert_behind,
    parse_xml,
    xml_bytes,
)

_RULES = InlineRules(containers={"hi"}, collapses_space=True)


def translate_tmx(job: Job) -> bytes:
    """Add a translation to each unit that has the source language and not the target language."""
    job.check_tags(job.data)
    tree = parse_xml(job.data, job.name)
    source_language, target_language = job.languages
    if not (source_language and target_language):
        raise InputError(f"{job.name} needs its languages: name the source and the target")

    # Make the new variants, as copies of the source.
    found: set[str] = set()
    contents = []
    for unit in tree.iter("{*}tu"):
        variants = {_language(variant): variant for variant in unit.iterchildren("{*}tuv")}
        found.update(variants)
        source = _variant(variants, source_language)
        if source is None or _text(source) is None:
            continue
        target = _variant(variants, target_language)
        if target is not None and _text(target):
            continue
        if target is None:
            target = _added(source, target_language)
        new = copy.deepcopy(source.find("{*}seg"))
        old = target.find("{*}seg")
        if old is not None:
            target.replace(old, new)
        contents.append(Content(new, _RULES))
    if not any(is_language(code, source_language) for code in found):
        known = ", ".join(sorted(found)) or "no text"
        raise InputError(f"{job.name} has no {source_language!r}; it has {known}")

    job.translate_contents(contents)
    return xml_bytes(tree, job.data)


def _language(variant: Element) -> str:
    language: str = variant.get(f"{XML}lang") or variant.get("lang") or ""
    return language


def _variant(variants: dict[str, Element], language: str) -> Element | None:
    for code, variant in variants.items():
        if is_language(code, language):
            return variant
    return None


def _text(variant: Element) -> str | None:
    """Return the text of a variant; None if it has no segment."""
    found = variant.find("{*}seg")
    return None if found is None else "".join(found.itertext()).strip()


def _added(source: Element, language: str) -> Element:
    """Return a new variant behind that of the source, with the same indents."""
    variant = source.makeelement(source.tag, {f"{XML}lang": language})
    variant.text = source.text if not (source.text or "").strip() else None
    new = source.makeelement(source.find("{*}seg").tag)
    new.tail = source.find("{*}seg").tail
    variant.append(new)
    insert_behind(source, variant)
    return variant
