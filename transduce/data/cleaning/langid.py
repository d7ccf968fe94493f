"""Which language a sentence is in, as far as it can be told: short texts, names and close relatives are left alone."""

from __future__ import annotations

import functools
import re
from typing import Any

from transduce.data.cleaning.rules import Side
from transduce.errors import require

_LEAST_BYTES = 30  # of letters and digits; shorter texts are often taken for another language
_MOST_CHARACTERS = 500  # more tell nothing new
_SURE = 0.5  # how likely the other language must be, out of 140
_UNLIKELY = 0.05  # how unlikely the expected one
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
    """The language of a code with a region: pt of pt-BR."""
    plain = re.split("[-_]", language.lower())[0]
    return _OTHER_NAMES.get(plain, plain)


def is_known(language: str) -> bool:
    """Whether sentences of this language can be told from others."""
    return code(language) in _identifier().labels


def is_wrong(side: Side, language: str) -> bool:
    """Whether a side is surely in another language than it should be."""
    if len(side.key) < _LEAST_BYTES:
        return False
    ranking = _identifier().rank(side.text[:_MOST_CHARACTERS])
    found, likelihood = ranking[0]
    expected = code(language)
    alike = next((group for group in _ALIKE if expected in group), {expected})
    return (
        found not in alike and likelihood >= _SURE and dict(ranking).get(expected, 1.0) < _UNLIKELY
    )
