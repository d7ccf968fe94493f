"""Text to ids and back."""
# ruff: noqa: RUF001

import io
import pickle
import random
import unicodedata
from dataclasses import replace

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.config import TokenizerConfig
from transduce.data.tokenizer import EOS, UNKNOWN, Tokenizer
from transduce.errors import ConfigError, DataError, InputError

CONFIG = TokenizerConfig(vocab_size=400)
SIZES = {"bpe": 370, "unigram": 340}


def sentences(count, seed=0):
    """Sentences of made-up words."""
    chance = random.Random(0)
    words = [
        "".join(chance.choices("aeioubdgklmnrstß", k=chance.randint(2, 7))) for _ in range(400)
    ]
    chance = random.Random(seed + 1)
    return [" ".join(chance.choices(words, k=chance.randint(2, 12))) + "." for _ in range(count)]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return Tokenizer.train(
        sentences(500), replace(CONFIG, kind=request.param, vocab_size=SIZES[request.param])
    )


@pytest.fixture(scope="module")
def normalizing():
    texts = [f"“{text}” – it’s “so”…" for text in sentences(300)]
    return Tokenizer.train(texts, replace(CONFIG, vocab_size=330, normalize_punctuation=True))


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text(
    st.sampled_from(" \t\u00a0\u2581\u2582\u2585\0\r\n\ufeff\ufffd\U0010ffff\U0010fffe<>aé🎉"),
    max_size=12,
)
NASTY = [
    "",
    " ",
    "  a  b  ",
    "\t",
    "a\u00a0b",
    "\u2581",
    " \u2581\u2581 a",
    "\0",
    "\U0010ffff\u2581",
    "</s><pad><0x41>",
]


def round_trip(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids[-1] == EOS
    assert UNKNOWN not in ids
    assert tokenizer.pad not in ids
    assert tokenizer.decode(ids) == text == tokenizer.normalize(text)


@pytest.mark.parametrize("text", NASTY)
def test_awkward_text_comes_back(tokenizer, text):
    round_trip(tokenizer, text)


@given(text=ANY_TEXT)
@settings(max_examples=1_000, deadline=None, database=None)
@example(text="a\u2581 \u2581b\U0010ffff")
def test_any_text_comes_back(shared_bpe, text):
    round_trip(shared_bpe, text)


@pytest.mark.slow
@given(text=ANY_TEXT)
@settings(max_examples=10_000, deadline=None, database=None)
def test_ten_thousand_texts_come_back(shared_bpe, text):
    round_trip(shared_bpe, text)


@pytest.fixture(scope="session")
def shared_bpe():
    return Tokenizer.train(sentences(500), replace(CONFIG, vocab_size=340))


def test_ids_are_the_ones_other_runtimes_expect(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.to_bytes())
    plain = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert plain.id_to_piece([0, 1, tokenizer.vocab_size - 1]) == ["</s>", "<unk>", "<pad>"]
    assert tokenizer.pad == tokenizer.vocab_size - 1 == len(plain) - 1
    assert plain.is_control(tokenizer.pad)
    assert plain.bos_id() == -1
    assert [*plain.encode("the old house"), EOS] == tokenizer.encode("the old house")


def test_training_is_deterministic(tokenizer):
    kind = next(kind for kind, size in SIZES.items() if size == tokenizer.vocab_size)
    again = Tokenizer.train(
        sentences(500), replace(CONFIG, kind=kind, vocab_size=tokenizer.vocab_size)
    )
    assert again.to_bytes() == tokenizer.to_bytes()
    other = Tokenizer.train(
        sentences(500, seed=1), replace(CONFIG, kind=kind, vocab_size=tokenizer.vocab_size)
    )
    assert other.fingerprint != tokenizer.fingerprint


def test_the_model_does_not_depend_on_where_it_was_trained(normalizing, tmp_path, monkeypatch):
    elsewhere = tmp_path / "a" / "longer" / "path"
    elsewhere.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    texts = [f"“{text}” – it’s “so”…" for text in sentences(300)]
    again = Tokenizer.train(texts, replace(CONFIG, vocab_size=330, normalize_punctuation=True))
    assert again.to_bytes() == normalizing.to_bytes()


def test_a_batch_equals_its_sentences_one_by_one(tokenizer):
    texts = [*sentences(20, seed=3), "a\u2581b", ""]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == texts


def test_sampling_is_seeded_and_lossless(tokenizer):
    texts = [*sentences(50, seed=4), "x\u2581y"]
    once, again = (tokenizer.encode_batch(texts, sampling=0.1, seed=7) for _ in range(2))
    assert once == again
    assert once != tokenizer.encode_batch(texts, sampling=0.1, seed=8)
    assert once != tokenizer.encode_batch(texts)
    assert tokenizer.decode_batch(once) == texts


def test_punctuation_is_normalized_in_the_model_itself(normalizing):
    text = "“It’s” – said «he»… in\u00a0Cafe\u0301 no\u00adw \u2581"
    plain = '"It\'s" - said "he"... in Café now \u2581'
    assert normalizing.decode(normalizing.encode(text)) == plain == normalizing.normalize(text)
    assert normalizing.encode(text) == normalizing.encode(plain)
    stock = sentencepiece.SentencePieceProcessor(model_proto=normalizing.to_bytes())
    assert stock.decode(stock.encode("it’s")) == "it's"


@given(st.text(st.sampled_from("aeiouAOU\u0300\u0301\u0302\u0308\u030a\u0323 "), max_size=10))
@settings(max_examples=300, deadline=None, database=None)
def test_accents_are_composed_as_unicode_does(normalizing_once, text):
    canonical = unicodedata.normalize("NFD", text)
    alone = all(len(cluster) <= 1 for cluster in _mark_runs(canonical))
    # Runs of several marks are composed only where Unicode has one character for all of them.
    if alone:
        assert normalizing_once.normalize(canonical) == unicodedata.normalize("NFC", text)


@pytest.fixture(scope="session")
def normalizing_once():
    texts = [f"“{text}” – it’s “so”…" for text in sentences(300)]
    return Tokenizer.train(texts, replace(CONFIG, vocab_size=330, normalize_punctuation=True))


def _mark_runs(text):
    return "".join("m" if unicodedata.combining(c) else " " for c in text).split()


def test_without_byte_fallback_the_unknown_is_unknown():
    tokenizer = Tokenizer.train(sentences(300), replace(CONFIG, vocab_size=80, byte_fallback=False))
    assert UNKNOWN in tokenizer.encode("漢")
    assert UNKNOWN in tokenizer.encode("\u2581")


def test_a_vocabulary_the_corpus_cannot_fill_is_refused_with_the_largest_it_can():
    for kind in ("bpe", "unigram"):
        config = replace(CONFIG, kind=kind, vocab_size=50_000)
        with pytest.raises(
            ConfigError, match=r"vocab_size is 50,000, but this corpus supports at most"
        ) as refusal:
            Tokenizer.train(sentences(50), config)
        largest = int(str(refusal.value).split("at most ")[1].split(";")[0].replace(",", ""))
        assert (
            Tokenizer.train(sentences(50), replace(config, vocab_size=largest)).vocab_size
            == largest
        )
        with pytest.raises(ConfigError, match="at most"):
            Tokenizer.train(sentences(50), replace(config, vocab_size=largest + 1))


def test_a_vocabulary_too_small_for_the_characters_is_refused():
    with pytest.raises(ConfigError, match=r"the characters of this corpus alone need 2\d\d"):
        Tokenizer.train(sentences(50), replace(CONFIG, vocab_size=200))


def test_bad_input_gets_one_line(tokenizer):
    with pytest.raises(
        InputError, match=r"character 3 of the text is the unpaired surrogate U\+D800"
    ):
        tokenizer.encode_batch(["fine", "ab\ud800"])
    with pytest.raises(InputError, match="unpaired surrogate"):
        Tokenizer.train(["ab\ud800"], CONFIG)
    with pytest.raises(InputError, match="expected 0 to"):
        tokenizer.decode([5, tokenizer.vocab_size])
    with pytest.raises(DataError, match="no text to learn"):
        Tokenizer.train(["", ""], CONFIG)
    with pytest.raises(DataError, match="not a SentencePiece model"):
        Tokenizer(b"nonsense")


def test_a_foreign_order_of_ids_is_refused(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(50)), model_writer=model, vocab_size=50, minloglevel=2
    )
    with pytest.raises(DataError, match=r"expected \(0, 1, 49\)"):
        Tokenizer(model.getvalue())


def test_a_tokenizer_travels_to_other_processes_and_files(tokenizer, tmp_path):
    (tmp_path / "t.model").write_bytes(tokenizer.to_bytes())
    for other in (pickle.loads(pickle.dumps(tokenizer)), Tokenizer.load(tmp_path / "t.model")):
        assert other.fingerprint == tokenizer.fingerprint
        assert other.pieces(other.encode("the river")) == tokenizer.pieces(
            tokenizer.encode("the river")
        )
    with pytest.raises(DataError, match="cannot be read as a tokenizer"):
        Tokenizer.load(tmp_path / "absent.model")


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
