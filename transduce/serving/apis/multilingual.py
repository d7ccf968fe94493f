"""The translation of texts that may be in different languages, as two of the faces need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from transduce.data.languages import base_language
from transduce.errors import printable
from transduce.serving.apis.languages import Detection, detect, name_of, targets
from transduce.serving.models import Models, ServedModel
from transduce.serving.refusals import RequestError
from transduce.translation.documents.html import without_references
from transduce.translation.result import Translation
from transduce.translation.sentences import Split

SHOWN = 40  # characters of a text in a message
SURE = 90.0  # percent from which a detected language is not doubted


@dataclass(frozen=True)
class Work:
    """One text, the language it is in, and the model for it: None if it stays as it is."""

    text: str
    detection: Detection
    model: ServedModel | None


def plan(models: Models, texts: Sequence[str], source: str | None, target: str) -> list[Work]:
    """Choose a model for each text, or refuse a text for which there is none.

    Without a source, the language of each text is detected. A text that is surely in a language
    that is not served stays as it is among others; only if all are so, they are refused.
    """
    served = targets(models)
    planned = []
    for text in texts:
        if source is None:
            detection = detect_source(models, text, target)
        else:
            detection = Detection(base_language(source), 100.0)
        model = None
        if detection.language in served and detection.language != base_language(target):
            check_pair(models, detection.language, target)
            model = models.for_languages(detection.language, target)
        planned.append(Work(text, detection, model))

    foreign = [work.detection.language not in served for work in planned]
    if any(foreign) and all(foreign):
        _refuse_language(" ".join(texts), planned[0].detection.language)
    return planned


def check_pair(models: Models, source: str, target: str) -> None:
    """Refuse languages that no model translates."""
    if base_language(target) not in targets(models)[source]:
        raise RequestError(
            400,
            f"{name_of(target)} ({target}) is not available as a target language from "
            f"{name_of(source)} ({source})",
        )


def detect_source(models: Models, text: str, target: str) -> Detection:
    """Return the language of a text among those that can be translated to the target, and it.

    A text that is surely in a language that is not served has that language.

    A word such as "bank" may be in both. Only a text that is surely in the target language stays as
    it is, for a translation that is not necessary does less harm than one that is missing.

    If no model translates to the target, the text may be in any language that is served.
    """
    target = base_language(target)
    known = targets(models)
    possible = [language for language in known if target in known[language]]
    is_target_only = possible == [target]
    found = detect(text, [*known] if is_target_only else possible)
    if found and found[0].language not in known:
        return found[0]
    if is_target_only:
        return found[0] if found else Detection(target, 0.0)
    is_sure = bool(found) and found[0].confidence >= SURE
    others = [detection for detection in found if detection.language != target]
    if others and not is_sure:
        return others[0]
    return found[0] if found else Detection("en" if "en" in possible else possible[0], 0.0)


def _refuse_language(text: str, language: str) -> NoReturn:
    shown = printable(" ".join(text.split()))
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    raise RequestError(
        400,
        f'the text "{shown}" seems to be in {name_of(language)} ({language}), which is not '
        "supported; if it is not, name its language as the source",
    )


def carry_out(
    planned: Sequence[Work], n_best: int = 1, split: Split = "lines", *, is_markup: bool = False
) -> list[Translation]:
    """Translate all texts, HTML and XML among them (`is_markup`), those of one model together."""
    results = [Translation(work.text, 0.0, ((work.text, 0.0),)) for work in planned]
    models = {work.model.name: work.model for work in planned if work.model}
    for model in models.values():
        places = [place for place, work in enumerate(planned) if work.model is model]
        texts = [planned[place].text for place in places]
        if is_markup:
            texts = [without_references(text) for text in texts]
        translations = model.translator.translate(texts, n_best=n_best, split=split)
        for place, translation in zip(places, translations, strict=True):
            results[place] = translation
    return results
