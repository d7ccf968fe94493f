"""The language of a text: one of the expected ones, unless it is surely in another."""

import csv
from pathlib import Path

import pytest

from transduce.serving.apis.languages import detect

FRENCH = "Je voudrais un café et un croissant, s'il vous plaît."
CATALAN = "Aquesta ciutat és molt bonica i té moltes platges."
SHORT = ["OK", "Stop", "Radio", "E-mail", "hotel restaurant taxi", "renaissance fairs", "pizza al"]


@pytest.mark.parametrize(
    ("text", "languages", "found"),
    [
        (FRENCH, ["en", "de"], "fr"),
        (FRENCH, ["en", "fr"], "fr"),
        (CATALAN, ["es"], "ca"),
        (FRENCH.upper(), ["en", "de"], "fr"),
        ("C'est très gentil.", ["en", "de"], "fr"),
        ("Dov'è la stazione?", ["en", "de"], "it"),
        ("この街はとても美しいです。", ["en", "de"], "ja"),
        ("Добрый день, как дела сегодня?", ["en", "de"], "ru"),
        # Languages that are alike are not told apart.
        ("Nema problema, vidimo se sutra ujutro.", ["sr"], "sr"),
        # It cannot be excluded that a text is in a language that the detector does not know.
        (FRENCH, ["en", "tlh"], "en"),
        ("Un &eacute;t&eacute; &agrave; la plage avec mes amis", ["en", "de"], "fr"),
        ("Bonjour", ["en", "de"], "en"),
        # Names may be from anywhere, and Latin is not expected.
        ("Ondřej Dvořák and Věra Čáslavská did the cooking.", ["en", "de"], "en"),
        ("curriculum vitae", ["en", "de"], None),
        # Neither checksums and codes nor repeated words are in another language.
        ("sha256:a7d448e93c191402d9b79b0b2ae8e7bf01a583fad0466b58e4941d5ffbe9", ["en", "de"], None),
        ("BYDLEHGNXQZ KJWVPMFTRB XZQWKJH", ["en", "de"], None),
        ("La la la la la la la la la la la", ["en", "de"], None),
        ("Русский", ["en", "de"], None),
        (" " * 3_000 + "word", ["en", "de"], None),
    ],
)
def test_a_text_is_in_another_language_only_if_that_is_sure(text, languages, found):
    detections = detect(text, languages)
    if found is None:
        assert {detection.language for detection in detections} <= {*languages}
    else:
        assert detections[0].language == found


def test_english_and_german_texts_are_never_taken_for_another_language():
    path = Path(__file__).parents[2] / "packaged.tsv"
    rows = csv.reader(path.read_text().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    texts = [text for row in rows for text in row] + SHORT
    words = [" ".join(text.split()[:3]) for text in texts]
    for text in texts + words:
        assert {found.language for found in detect(text, ["en", "de"])} <= {"en", "de"}, text
