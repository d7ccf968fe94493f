"""The translation of texts that may be in different languages, as two of the faces need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.serving.languages import Detection, detect, targets
from transduce.serving.models import Models, ServedModel, base
from transduce.translation.result import Translation


@dataclass(frozen=True)
class Work:
    """One text, the language it is in, and the model for it: None if it stays as it is."""

    text: str
    detection: Detection
    model: ServedModel | None


def plan(models: Models, texts: Sequence[str], source: str | None, target: str) -> list[Work]:
    """Choose a model for each text. Without a source, its language is detected.

    Detection only considers languages that can be translated to the target, and the target.
    """
    known = targets(models)
    possible = [language for language in known if base(target) in known[language]]
    planned = []
    for text in texts:
        if source is not None:
            detection = Detection(base(source), 100.0)
        else:
            found = detect(text, possible)
            detection = found[0] if found else Detection(_fallback(known), 0.0)
        stays = detection.language == base(target)
        model = None if stays else models.for_languages(detection.language, target)
        planned.append(Work(text, detection, model))
    return planned


def carry_out(planned: Sequence[Work], n_best: int = 1) -> list[Translation]:
    """Translate all texts, those of one model together."""
    results = [Translation(work.text, 0.0, ((work.text, 0.0),)) for work in planned]
    models = {work.model.name: work.model for work in planned if work.model}
    for model in models.values():
        places = [place for place, work in enumerate(planned) if work.model is model]
        texts = [planned[place].text for place in places]
        translations = model.translator.translate(texts, n_best=n_best)
        for place, translation in zip(places, translations, strict=True):
            results[place] = translation
    return results


def _fallback(known: dict[str, list[str]]) -> str:
    """Return the language of a text that has none, such as a number."""
    return "en" if "en" in known else next(iter(known), "en")
