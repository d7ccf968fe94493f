"""Sentences in capitals are read in lower case, and their translations get the capitals back."""

import pytest

from tests.translation.test_translator import Echo
from transduce.config import TokenizerConfig
from transduce.data.tokenizer import Tokenizer
from transduce.storage.bundle import load_bundle
from transduce.storage.installed import find_bundle
from transduce.translation.capitals import Capitals, to_capitals, to_lower_case
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator():
    """The tokenizers of the packaged model around an engine that echoes."""
    translator = Translator(load_bundle(find_bundle()), engine="torch", device="cpu")
    translator.engine = Echo()
    translator._links = lambda source, *_: [(index, index) for index in range(len(source.split()))]
    return translator


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("THE MEETING IS CANCELLED.", "The meeting is cancelled."),
        ('"GOOD MORNING", SAID THE NATO.', '"Good morning", said the NATO.'),
        ("CLOSE THE B2B PORTAL AT 8 P.M.", "Close the B2B portal at 8 p.m."),
        ("WARNING", "Warning"),
        # Abbreviations, names in code, and what has no case.
        ("NATO", ""),
        ("WHO", ""),
        ("README", ""),
        ("MAX_TOKENS", ""),
        ("ISO 9001", ""),
        ("98 %", ""),
        # Not in capitals.
        ("Please do NOT touch this.", ""),
        ("THE iPHONE IS BROKEN.", ""),
    ],
)
def test_capitals_that_take_many_pieces_are_read_in_lower_case(translator, text, read):
    capitals = Capitals(translator.tokenizers[0], "en")
    assert capitals.read(text) == read
    sentences, _ = translator.read(text)
    assert [sentence.plain for sentence in sentences] == [read or text]


def test_a_model_that_knows_capitals_reads_them():
    sentences = ["THE MEETING IS CANCELLED.", "THE TRAIN IS LATE.", "GOOD MORNING."] * 40
    config = TokenizerConfig(vocab_size=300)
    tokenizer = Tokenizer.train(sentences, config)
    assert Capitals(tokenizer, "en").read(sentences[0]) == ""


def test_the_translation_is_in_capitals_but_what_was_set_apart_is_not(translator):
    text = "OPEN THE <b>MAIN</b> WINDOW OF %1$s AT https://example.org/a AND WAIT, NATO!"
    result = translator.translate(text, alignments=True, confidences=True)
    assert result.text == text
    (sentence,) = result.sentences
    assert sentence.source == text
    assert sentence.alignment.source == sentence.alignment.target
    assert "WINDOW" in sentence.alignment.source
    assert "".join(token.text for token in sentence.tokens[:2]) == "\u2581OPEN\u2581THE"
    assert sentence.tokens[-1].text == "</s>"


def test_each_sentence_of_a_text_has_its_own_case(translator):
    text = "PLEASE READ THIS.\nIt is long. DO NOT FORGET THE SECOND PAGE."
    read, _ = translator.read(text)
    assert [sentence.plain for sentence in read] == [
        "Please read this.",
        "It is long.",
        "Do not forget the second page.",
    ]
    assert translator.translate(text).text == text


def test_terms_of_a_glossary_are_written_as_they_are_given(translator):
    glossary = {"WINDOW": "Fenster"}
    found = translator.translate("OPEN THE WINDOW OF THE LIVING ROOM.", glossary=glossary)
    assert found.text == "OPEN THE Fenster OF THE LIVING ROOM."


class Continue(Echo):
    """An engine that begins with the prefix, as every engine must."""

    def search(self, sources, config, *, prefixes=(), token_scores=True):
        self.prefixes = prefixes
        found = super().search(sources, config, prefixes=prefixes, token_scores=token_scores)
        for hypotheses, prefix in zip(found, prefixes, strict=True):
            hypotheses[0].ids[:0] = prefix
        return found


def test_a_prefix_decides_whether_the_translation_is_in_capitals(translator, monkeypatch):
    monkeypatch.setattr(translator, "engine", Continue())
    text = "THE MEETING IS CANCELLED."
    in_capitals = translator.translate(text, prefix="DIE SITZUNG")
    assert in_capitals.text == "DIE SITZUNG THE MEETING IS CANCELLED."
    (prefix,) = translator.engine.prefixes
    assert translator.tokenizers[1].decode(prefix) == "Die sitzung"
    mixed = translator.translate(text, prefix="Die Sitzung")
    assert mixed.text == "Die Sitzung THE MEETING IS CANCELLED."
    assert len(mixed.sentences) == 1


def test_capitals_of_turkish_keep_their_dots():
    assert to_capitals("istanbul \u0131\u015f\u0131k", "tr") == "\u0130STANBUL I\u015eIK"
    assert to_lower_case("\u0130STANBUL I\u015eIK", "tr") == "istanbul \u0131\u015f\u0131k"
    assert to_capitals("Stra\u00dfe in", "de") == "STRASSE IN"
