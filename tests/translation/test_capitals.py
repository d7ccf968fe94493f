"""Sentences in capitals are read in lower case, and their translations get the capitals back."""

import pytest

from tests.translation.test_translator import Echo
from transduce.config import TokenizerConfig
from transduce.data.tokenizer import Tokenizer
from transduce.storage.bundle import load_bundle
from transduce.storage.installed import find_bundle
from transduce.translation.capitals import (
    Capitals,
    is_in_capitals,
    to_capitals,
    to_lower_case,
)
from transduce.translation.markup import Glossary
from transduce.translation.reading import Reader
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
        # Each word in the case in which it takes the fewest pieces.
        (
            '"GOOD MORNING", SAID THE NATO IN GERMANY.',
            '"Good morning", said the NATO in Germany.',
        ),
        ("BREAKFAST", "Breakfast"),
        # Digits and names in code stay, and so do short words in lower case.
        (
            "THE B2B FARMERS OFTEN CLOSE BEFORE 8 P.M.",
            "The B2B farmers often close before 8 p.m.",
        ),
        ("THE 30-YEAR-OLD FARMER DROVE 50 km/h.", "The 30-year-old farmer drove 50 km/h."),
        ("OPEN THE DOCUMENT HOUSE.PDF IN A WINDOW.", "Open the document HOUSE.PDF in a window."),
        ("50 PEOPLE CLOSED THE WINDOW.", "50 people closed the window."),
        ("FU\u00dfG\u00c4NGER WAITED HERE.", "Fu\u00dfg\u00e4nger waited here."),
        (">>deu<< THE MEETING IS CANCELLED.", ">>deu<< The meeting is cancelled."),
        # Abbreviations, names in code, and what has no case.
        ("NATO", None),
        ("WHO", None),
        ("README", None),
        ("MAX_TOKENS", None),
        ("ISO 9001", None),
        ("98 %", None),
        # Not in capitals.
        ("Please do NOT touch this.", None),
        ("THE iPHONE IS BROKEN.", None),
        ("BREAKING NEWS: Bob IS HERE TODAY AGAIN.", None),
    ],
)
def test_capitals_that_take_many_pieces_are_read_in_lower_case(translator, text, read):
    sentences, _ = translator.read(text)
    assert [sentence.read for sentence in sentences] == [read or text]


def test_one_word_in_capitals_does_not_decide_for_a_script_without_case():
    assert not is_in_capitals("\u8bf7\u6253\u5f00PHOTOSHOP")


@pytest.mark.parametrize(
    "address", ["WWW.APPLE.COM", "HTTP://WWW.WINDOWS.COM/HELP", "A.B@APPLE.COM"]
)
def test_addresses_in_capitals_are_copied(translator, address):
    text = f"PLEASE VISIT {address} FOR MORE INFORMATION."
    (sentence,), _ = translator.read(text)
    assert sentence.read == "Please visit X1 for more information."
    assert translator.translate(text).text == text


def test_a_model_that_knows_capitals_reads_them():
    sentences = ["THE MEETING IS CANCELLED.", "THE TRAIN IS LATE.", "GOOD MORNING."] * 40
    config = TokenizerConfig(vocab_size=300)
    tokenizer = Tokenizer.train(sentences, config)
    assert Capitals(tokenizer, "en").lower(sentences[0]) is None


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
    assert [sentence.read for sentence in read] == [
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
        self.sources = sources
        self.prefixes = [prefix for prefix in prefixes if prefix]
        found = super().search(sources, config, prefixes=prefixes, token_scores=token_scores)
        for hypotheses, prefix in zip(found, prefixes, strict=True):
            hypotheses[0].ids[:0] = prefix
        return found


@pytest.mark.parametrize(
    ("prefix", "searched"),
    [("DIE SITZUNG", "Die sitzung"), ("HALLO %s", "Hallo x1"), ('"', '"'), ("1.", "1.")],
)
def test_a_prefix_in_capitals_is_given_to_the_model_in_lower_case(
    translator, monkeypatch, prefix, searched
):
    monkeypatch.setattr(translator, "engine", Continue())
    text = "GRANDMOTHER %s, THE MEETING IS CANCELLED."
    assert translator.translate(text, prefix=prefix).text.startswith(prefix)
    (given,) = translator.engine.prefixes
    assert translator.tokenizers[1].decode(given) == searched


@pytest.mark.parametrize("prefix", ["Die Sitzung", "DIE STRA\u00dfE", "DIE STRA\u1e9eE"])
def test_a_prefix_that_is_not_in_capitals_keeps_the_case_of_the_first_sentence(
    translator, monkeypatch, prefix
):
    monkeypatch.setattr(translator, "engine", Continue())
    text = "THE MEETING IS CANCELLED. PLEASE GO HOME NOW."
    assert translator.translate(text, prefix=prefix).text == f"{prefix} {text}"
    first, second = translator.engine.sources
    assert translator.tokenizers[0].decode(first) == "THE MEETING IS CANCELLED."
    assert translator.tokenizers[0].decode(second) == "Please go home now."


def test_a_sentence_is_as_long_as_what_the_model_reads(translator):
    sentence = "THE MEETING OF THE COMMITTEE IS CANCELLED, " * 16 + "AND EVERYBODY SHOULD GO HOME."
    tokens = [len(translator.tokenizers[0].encode(text)) for text in (sentence, sentence.lower())]
    assert tokens[0] > translator.recipe.data.max_tokens > tokens[1]
    assert translator.translate(sentence).notices == ()


def test_capitals_of_turkish_keep_their_dots():
    assert to_capitals("istanbul \u0131\u015f\u0131k", "tr") == "\u0130STANBUL I\u015eIK"
    assert to_lower_case("\u0130STANBUL I\u015eIK", "tr") == "istanbul \u0131\u015f\u0131k"
    assert to_capitals("i", "tr-TR") == "\u0130"
    assert to_capitals("Stra\u00dfe in \u00b5m", "de") == "STRASSE IN \u00b5M"


# Words whose initial is a capital that the model has never seen


@pytest.fixture(scope="module")
def reader():
    """A reader for the German of the packaged model, whose tokenizer has no piece for Ö."""
    (source, _) = Tokenizer.pair(load_bundle(find_bundle("de-en")).tokenizer_files)
    assert "<0xC3>" in source.pieces(source.encode("Ö"))
    return Reader(source, "de", 256)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Österreich gewinnt.", "österreich gewinnt."),
        ("Die Öffentlichkeit und die Übung", "Die öffentlichkeit und die Übung"),
        # What lower case makes no better known is copied: abbreviations and names.
        ("Die ÖVP in Österreich", "Die {} VP in österreich"),
        ("Mesut Özil", "Mesut {} zil"),
        ("Öland liegt in Schweden.", "{} land liegt in Schweden."),
        # The small letter is no better known, or there is none.
        ("Él vive", "{} l vive"),
        ("🙂 Öl", "{} öl"),
        # What must stay as it is.
        ("Siehe https://example.org/Österreich.", "Siehe {}."),
        ("Schreiben Sie an Österreich@example.org.", "Schreiben Sie an {}."),
        ("Siehe <b title='Österreich'>Österreich</b>.", "Siehe österreich."),
    ],
)
def test_a_word_with_an_unknown_initial_is_read_in_lower_case(reader, text, read):
    ((sentence,), notices) = reader.read(text)
    (protected,) = reader.prepare(text).protected
    stand_ins = [span.stand_in for span in protected.spans if span.stand_in]
    assert sentence.read == read.format(*stand_ins)
    assert all(span.text in text for span in protected.spans)
    assert sentence.text == text
    assert not notices


def test_a_term_of_a_glossary_keeps_its_initial(reader):
    glossary = Glossary({"Österreich": "Ostarrichi"})
    (protected,) = reader.prepare("Österreich gewinnt.", glossary).protected
    assert protected.has_terms
    assert "sterreich" not in protected.read
