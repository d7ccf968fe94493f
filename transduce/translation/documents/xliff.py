"""Localization files (.xlf, .xliff) of the versions 1.2 and 2: empty targets are filled."""

from __future__ import annotations

import copy
import re

from transduce.data.languages import base_language
from transduce.errors import InputError
from transduce.translation.documents.job import Job
from transduce.translation.documents.xml_content import (
    Content,
    Element,
    InlineRules,
    insert_behind,
    local_name,
    parse_xml,
    xml_bytes,
)

_PLACEHOLDER = re.compile(r"[%{$]")


class _Rules(InlineRules):
    """The inline elements of XLIFF, of which placeholders such as %s are words."""

    def is_kept(self, element: Element) -> bool:
        """Return whether the text in an element is marked as fixed."""
        return element.get("translate") == "no" or element.get("mtype") == "protected"

    def is_word(self, element: Element) -> bool:
        """Return whether an element is a placeholder for a value, or a fixed text."""
        if not isinstance(element.tag, str):  # a comment
            return False
        if self.is_kept(element):
            return True
        shown = "".join(element.itertext())
        described = [element.get(name, "") for name in ("equiv-text", "equiv", "disp")]
        return any(map(_PLACEHOLDER.search, [shown, *described]))


_RULES = _Rules(containers={"g", "mrk", "pc"})


def translate_xliff(job: Job) -> bytes:
    """Fill the targets that are empty. Finished ones, and texts marked as fixed, stay."""
    job.check_tags(job.data)
    tree = parse_xml(job.data, job.name)
    root = tree.getroot()
    if local_name(root) != "xliff":
        raise InputError(f"{job.name} is not XLIFF: it starts with <{local_name(root)}>")
    is_old = root.get("version", "").startswith("1")
    unit_name = "trans-unit" if is_old else "segment"
    _check_languages(root, job, is_old)
    _set_language(root, job.languages[1], is_old)

    contents = []
    for unit in root.iter(f"{{*}}{unit_name}"):
        source = unit.find("{*}seg-source")
        if source is None:
            source = unit.find("{*}source")
        if source is not None and _is_open(unit):
            contents.append(Content(_new_target(unit, source, is_old), _RULES))

    job.translate_contents(contents)
    return xml_bytes(tree, job.data)


def _check_languages(root: Element, job: Job, is_old: bool) -> None:
    """Refuse a file of other languages; a region makes no difference, and a name may be missing."""
    elements = [*root.iter("{*}file")] if is_old else [root]
    names = ("source-language", "target-language") if is_old else ("srcLang", "trgLang")
    for element in elements:
        for name, language in zip(names, job.languages, strict=True):
            declared = element.get(name)
            if declared and language and base_language(declared) != base_language(language):
                raise InputError(
                    f"{job.name} has {name}={declared!r:.40}; expected {language!r}: translate it "
                    "with a model for its languages, or correct the name"
                )


def _set_language(root: Element, language: str, is_old: bool) -> None:
    """Name the target language where it is missing."""
    if not language:
        return
    if not is_old:
        root.set("trgLang", root.get("trgLang") or language)
        return
    for file in root.iter("{*}file"):
        file.set("target-language", file.get("target-language") or language)


def _is_open(unit: Element) -> bool:
    """Return whether a unit may be translated and has no translation yet."""
    for element in (unit, *unit.iterancestors()):
        allowed = element.get("translate")
        if allowed is not None:
            if allowed == "no":
                return False
            break
    target = unit.find("{*}target")
    return target is None or not (len(target) or (target.text or "").strip())


def _new_target(unit: Element, source: Element, is_old: bool) -> Element:
    """Put a copy of the source where the target belongs, and mark it as machine translation."""
    target = copy.deepcopy(source)
    target.tag = source.tag.rpartition("}")[0] + "}target" if "}" in source.tag else "target"
    target.attrib.clear()
    old = unit.find("{*}target")
    if old is not None:
        target.attrib.update(old.attrib)
        target.tail = old.tail
        unit.replace(old, target)
    else:
        insert_behind(source, target)
    if is_old:
        target.set("state", "needs-review-translation")
        target.set("state-qualifier", "mt-suggestion")
    else:
        unit.set("state", "translated")
    return target
