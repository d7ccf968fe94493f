"""Text to ids and back."""

import io
import pickle
from dataclasses import replace

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.data.conftest import made_up_sentences
from transduce.config import TokenizerConfig
from transduce.data.tokenizer import EOS, UNKNOWN, Tokenizer
from transduce.errors import DataError, InputError

CONFIG = TokenizerConfig(vocab_size=400)
SIZES = {"bpe": 370, "unigram": 340}


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return Tokenizer.train(
        made_up_sentences(500), replace(CONFIG, kind=request.param, vocab_size=SIZES[request.param])
    )


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
    return Tokenizer.train(made_up_sentences(500), replace(CONFIG, vocab_size=340))


def test_ids_are_the_ones_other_runtimes_expect(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tokenizer.to_bytes())
    plain = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert plain.id_to_piece([0, 1, tokenizer.vocab_size - 1]) == ["</s>", "<unk>", "<pad>"]
    assert tokenizer.pad == tokenizer.vocab_size - 1 == len(plain) - 1
    assert plain.is_control(tokenizer.pad)
    assert plain.bos_id() == -1
    assert [*plain.encode("the old house"), EOS] == tokenizer.encode("the old house")


def test_a_batch_equals_its_sentences_one_by_one(tokenizer):
    texts = [*made_up_sentences(20, seed=3), "a\u2581b", ""]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == texts


def test_sampling_is_seeded_and_lossless(tokenizer):
    texts = [*made_up_sentences(50, seed=4), "x\u2581y"]
    once, again = (tokenizer.encode_batch(texts, sampling=0.1, seed=7) for _ in range(2))
    assert once == again
    assert once != tokenizer.encode_batch(texts, sampling=0.1, seed=8)
    assert once != tokenizer.encode_batch(texts)
    assert tokenizer.decode_batch(once) == texts


def test_without_byte_fallback_the_unknown_is_unknown():
    tokenizer = Tokenizer.train(
        made_up_sentences(300), replace(CONFIG, vocab_size=80, byte_fallback=False)
    )
    assert UNKNOWN in tokenizer.encode("漢")
    assert UNKNOWN in tokenizer.encode("\u2581")


def test_bad_input_gets_one_line(tokenizer):
    with pytest.raises(
        InputError, match=r"character 3 of the text is the unpaired surrogate U\+D800"
    ):
        tokenizer.encode_batch(["fine", "ab\ud800"])
    with pytest.raises(InputError, match="expected 0 to"):
        tokenizer.decode([5, tokenizer.vocab_size])
    with pytest.raises(DataError, match="not a SentencePiece model"):
        Tokenizer(b"nonsense")


def test_a_foreign_order_of_ids_is_refused(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(made_up_sentences(50)),
        model_writer=model,
        vocab_size=50,
        minloglevel=2,
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
