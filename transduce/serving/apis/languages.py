"""Languages: their names, and which one a text is written in."""

from __future__ import annotations

from collections.abc import Collection
from html import unescape
from typing import NamedTuple

from transduce.data.cleaning.langid import code, is_alike, is_known, rank
from transduce.data.languages import base_language
from transduce.serving.models import Models
from transduce.translation.markup_patterns import PROTECTED

MOST_LOOKED_THROUGH = 20_000  # characters of a text, with its markup
MOST_CHARACTERS = 2_000  # of a text that are examined
LEAST_CONFIDENCE = 1.0  # percent; less likely languages are not listed
# A text is in another language than the expected ones if these are so unlikely, together, and it
# has so many bytes of letters.
UNLIKELY = 0.005
LEAST_BYTES = 15
NO_LANGUAGE = "zxx"  # the detector's label for checksums, codes and the like
NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian",
    "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto",
    "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian",
    "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh",
    "km": "Khmer", "kn": "Kannada", "ko": "Korean", "lb": "Luxembourgish", "lt": "Lithuanian",
    "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi",
    "ms": "Malay", "mt": "Maltese", "nb": "Norwegian", "ne": "Nepali", "nl": "Dutch",
    "no": "Norwegian", "pa": "Punjabi", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian",
    "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai",
    "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


class Detection(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float  # percent


def name_of(language: str) -> str:
    """Return the English name of a language, or its code if the name is not known here."""
    return NAMES.get(base_language(language), language)


def targets(models: Models) -> dict[str, list[str]]:
    """Return, for each language that is served, those it can be translated to, with itself."""
    found: dict[str, list[str]] = {}
    for model in models.served:
        if model.source_language is None or model.target_language is None:
            continue
        source = base_language(model.source_language)
        target = base_language(model.target_language)
        for language in (source, target):
            found.setdefault(language, [language])
        if target not in found[source]:
            found[source].append(target)
    return found


def detect(text: str, languages: Collection[str]) -> list[Detection]:
    """Return the likely languages of a text, the likeliest first.

    They are among the given ones, and so are their probabilities, unless the text is surely in
    another language. A text without letters has none, and tags and addresses, which look like
    English, do not count.
    """
    # Accents in HTML, such as &eacute;, tell languages apart.
    text = PROTECTED.sub(" ", unescape(text[:MOST_LOOKED_THROUGH]))
    if not any(map(str.isalpha, text)):
        return []
    text = text[:MOST_CHARACTERS]
    by_code = {code(language): language for language in languages}
    # Other languages without a name here are so rare that a short text is in them only by chance.
    plausible = {*NAMES, NO_LANGUAGE, *by_code}
    plain = _without_names(text)
    ranking = [(label, chance) for label, chance in rank(plain) if label in plausible]
    if not _is_in_another(plain, ranking, languages):
        ranking = [(by_code[label], chance) for label, chance in rank(text) if label in by_code]
    total = sum(chance for _, chance in ranking)
    if total <= 0:
        return []
    shares = [Detection(name, round(100 * chance / total, 1)) for name, chance in ranking]
    return [share for share in shares if share.confidence >= LEAST_CONFIDENCE]


def _without_names(text: str) -> str:
    """Leave out the capitalized words after the first one: a name may be from anywhere."""
    if text.isupper():
        return text
    words = text.split()
    return " ".join(words[:1] + [word for word in words[1:] if word == word.lower()])


def _is_in_another(text: str, ranking: list[tuple[str, float]], languages: Collection[str]) -> bool:
    """Return whether a text is surely in none of these languages."""
    # A word that is repeated, as in "la la la", counts once.
    words = "".join(dict.fromkeys(text.casefold().split()))
    letters = "".join(filter(str.isalpha, words))
    if len(letters.encode()) < LEAST_BYTES or not all(map(is_known, languages)):
        return False
    total = sum(chance for _, chance in ranking)
    likelihood = sum(chance for label, chance in ranking if _may_be(label, languages))
    return likelihood < UNLIKELY * total


def _may_be(label: str, languages: Collection[str]) -> bool:
    """Return whether what looks like one language, or like none, may be in one of these."""
    return label == NO_LANGUAGE or any(is_alike(label, language) for language in languages)
