"""Vocabularies that are learned from text."""
# ruff: noqa: RUF001

import unicodedata
from dataclasses import replace

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.conftest import made_up_sentences
from transduce.config import TokenizerConfig
from transduce.data.tokenizer import EOS, UNKNOWN, Tokenizer
from transduce.errors import ConfigError, DataError, InputError

CONFIG = TokenizerConfig(vocab_size=400)


@pytest.fixture(scope="module")
def normalizing():
    texts = [f"“{text}” – it’s “so”…" for text in made_up_sentences(300)]
    return Tokenizer.train(texts, replace(CONFIG, vocab_size=330, normalize_punctuation=True))


@pytest.mark.parametrize(("kind", "size"), [("bpe", 370), ("unigram", 340)])
def test_training_is_deterministic(kind, size):
    config = replace(CONFIG, kind=kind, vocab_size=size)
    first, again = (Tokenizer.train(made_up_sentences(500), config) for _ in range(2))
    assert again.to_bytes() == first.to_bytes()
    assert Tokenizer.train(made_up_sentences(500, seed=1), config).fingerprint != first.fingerprint


def test_the_model_does_not_depend_on_where_it_was_trained(normalizing, tmp_path, monkeypatch):
    elsewhere = tmp_path / "a" / "longer" / "path"
    elsewhere.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    texts = [f"“{text}” – it’s “so”…" for text in made_up_sentences(300)]
    again = Tokenizer.train(texts, replace(CONFIG, vocab_size=330, normalize_punctuation=True))
    assert again.to_bytes() == normalizing.to_bytes()


def test_punctuation_is_normalized_in_the_model_itself(normalizing):
    text = "“It’s” – said «he»… in\u00a0Cafe\u0301 no\u00adw \u2581"
    plain = '"It\'s" - said "he"... in Café now \u2581'
    assert normalizing.decode(normalizing.encode(text)) == plain == normalizing.normalize(text)
    assert normalizing.encode(text) == normalizing.encode(plain)
    stock = sentencepiece.SentencePieceProcessor(model_proto=normalizing.to_bytes())
    assert stock.decode(stock.encode("it’s")) == "it's"


@given(st.text(st.sampled_from("aeiouAOU\u0300\u0301\u0302\u0308\u030a\u0323 "), max_size=10))
@settings(max_examples=300, deadline=None, database=None)
def test_accents_are_composed_as_unicode_does(normalizing, text):
    canonical = unicodedata.normalize("NFD", text)
    alone = all(len(cluster) <= 1 for cluster in _mark_runs(canonical))
    # Runs of several marks are composed only where Unicode has one character for all of them.
    if alone:
        assert normalizing.normalize(canonical) == unicodedata.normalize("NFC", text)


def _mark_runs(text):
    return "".join("m" if unicodedata.combining(c) else " " for c in text).split()


def test_a_vocabulary_the_corpus_cannot_fill_is_refused_with_the_largest_it_can():
    for kind in ("bpe", "unigram"):
        config = replace(CONFIG, kind=kind, vocab_size=50_000)
        with pytest.raises(
            ConfigError, match=r"vocab_size is 50,000, but this corpus supports at most"
        ) as refusal:
            Tokenizer.train(made_up_sentences(50), config)
        largest = int(str(refusal.value).split("at most ")[1].split(";")[0].replace(",", ""))
        assert (
            Tokenizer.train(made_up_sentences(50), replace(config, vocab_size=largest)).vocab_size
            == largest
        )
        with pytest.raises(ConfigError, match="at most"):
            Tokenizer.train(made_up_sentences(50), replace(config, vocab_size=largest + 1))


def test_a_vocabulary_too_small_for_the_characters_is_refused():
    with pytest.raises(ConfigError, match=r"the characters of this corpus alone need 2\d\d"):
        Tokenizer.train(made_up_sentences(50), replace(CONFIG, vocab_size=200))


def test_each_word_is_a_token_if_the_vocabulary_has_words():
    texts = ["(S (NP XX )NP )S", "Mr. Smith didn't", "Mr. Jones", "zebra " * 999 + "end"]
    words = {word for text in texts for word in text.split()}
    config = replace(CONFIG, kind="word", vocab_size=len(words) + 3, character_coverage=1.0)
    tokenizer = Tokenizer.train(texts, config)
    for text in texts:
        ids = tokenizer.encode(text)
        assert len(ids) == len(text.split()) + 1
        assert tokenizer.decode(ids) == text
    assert tokenizer.encode("Mr. Miller")[1:] == [UNKNOWN, EOS]
    with pytest.raises(ConfigError, match="words have one segmentation only; set it to 0"):
        replace(config, sampling=0.1)


def test_rare_capitals_of_german_have_pieces():
    """One letter in three thousand is a capital Ö."""
    texts = ["schoene kleine worte " * 150 + "\u00f6 " * 20 + "\u00d6l"] * 50
    tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=300))
    assert not any("<0x" in piece for piece in tokenizer.pieces(tokenizer.encode("\u00d6l")))


def test_text_that_nothing_can_be_learned_from_gets_one_line():
    with pytest.raises(InputError, match="unpaired surrogate"):
        Tokenizer.train(["ab\ud800"], CONFIG)
    with pytest.raises(DataError, match="no text to learn"):
        Tokenizer.train(["", ""], CONFIG)
