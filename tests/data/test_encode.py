"""Encoding word by word gives the same ids as encoding the whole text."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.data.conftest import made_up_sentences
from transduce.config import TokenizerConfig
from transduce.data.encode import WordEncoder
from transduce.data.tokenizer import Tokenizer

TEXT = st.text(
    st.sampled_from("aeidgklmnst   \u00a0\u00ad\u0301\u2019\u2581\u200b\t\0.漢é"), max_size=15
) | st.text(max_size=20)


@pytest.fixture(scope="module", params=[False, True], ids=["as it is", "normalized"])
def tokenizer(request):
    return Tokenizer.train(
        made_up_sentences(300), TokenizerConfig(vocab_size=340, normalize_punctuation=request.param)
    )


@settings(max_examples=800, deadline=None, database=None)
@given(texts=st.lists(TEXT, max_size=4))
@example(
    texts=[
        "",
        " ",
        "  ",
        "\u00ad",
        "\u00ad a",
        "a \u00ad b",
        " a",
        "a ",
        "a  b",
        "a\u00a0b",
        "\u2581",
        "\u200b\u00ad",
    ]
)
def test_word_by_word_equals_the_whole(tokenizer, texts):
    texts = [text for text in texts if not any("\ud800" <= c <= "\udfff" for c in text)]
    rows = WordEncoder(tokenizer).encode(texts)
    assert [np.frombuffer(row, "<u2").tolist() for row in rows] == tokenizer.encode_batch(texts)


def test_what_is_remembered_does_not_matter(tokenizer, monkeypatch):
    encoder, texts = WordEncoder(tokenizer), made_up_sentences(200, seed=5)
    first = encoder.encode(texts)
    assert encoder.encode(texts) == first
    monkeypatch.setattr("transduce.data.encode._CACHED_WORDS", 0)
    assert encoder.encode(texts[:5]) == first[:5]
