"""Find sentences in a wrong language. Short texts and closely related languages are not judged."""

from __future__ import annotations

import functools
from typing import Any

from transduce.data.cleaning.rules import Side
from transduce.data.languages import base_language
from transduce.errors import require

_LEAST_BYTES = 30  # of letters and digits; shorter texts are often misidentified
_MOST_CHARACTERS = 500  # more do not improve the result
_SURE = 0.5  # the least probability of another language, out of 140
_UNLIKELY = 0.05  # the probability that the expected language must be below
_ALIKE = (
    {"bs", "hr", "sr"},
    {"da", "nn", "no"},
    {"id", "ms"},
    {"wuu", "yue", "zh"},
    {"gl", "pt"},
    {"lb", "de"},
)
_OTHER_NAMES = {"nb": "no", "iw": "he", "in": "id", "cmn": "zh", "sh": "hr"}


@functools.cache
def _identifier() -> Any:
    langid = require("py3langid.langid", extra="data")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


def code(language: str) -> str:
    """Return the language of a code that may have a region: pt of pt-BR."""
    plain = base_language(language)
    return _OTHER_NAMES.get(plain, plain)


def is_known(language: str) -> bool:
    """Return whether sentences in this language can be identified."""
    return code(language) in _identifier().labels


def identify(text: str) -> str:
    """Return the code of the most likely language of a text."""
    language: str = _identifier().rank(text)[0][0]
    return language


def is_alike(found: str, language: str) -> bool:
    """Return whether the language that was found is the expected one, or easily taken for it."""
    expected = code(language)
    return found in next((group for group in _ALIKE if expected in group), {expected})


def rank(text: str) -> list[tuple[str, float]]:
    """Return the codes of all languages with their probabilities, the most likely first."""
    ranking: list[tuple[str, float]] = _identifier().rank(text)
    return [(language, float(probability)) for language, probability in ranking]


def is_wrong(side: Side, language: str) -> bool:
    """Return whether a side is almost certainly in another language than expected."""
    if len(side.key) < _LEAST_BYTES:
        return False
    ranking = _identifier().rank(side.text[:_MOST_CHARACTERS])
    likeliest, probability = ranking[0]
    if is_alike(likeliest, language) or probability < _SURE:
        return False
    return bool(dict(ranking).get(code(language), 1.0) < _UNLIKELY)
