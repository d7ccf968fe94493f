"""Which sentences count as the same, and the set of their hashes."""

import hashlib
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.cleaning.dedup import HashSet, as_hashes, digest, key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("»Grüße!«", "GRÜSSE"),
        ("Grüße", unicodedata.normalize("NFD", "GRÜẞE")),
        ("It\u2019s 5 o'clock…", "its5oclock"),
        ("\uff21\uff22\u3000\uff11", "ab 1"),  # full width
        ("co\u00adop\u200b", "coop"),
    ],
)
def test_sentences_are_the_same_by_letters_and_digits(one, other):
    assert key(one) == key(other) != b""


@pytest.mark.parametrize(
    ("one", "other"),
    [("schon", "schön"), ("1987", "1978"), ("कि", "की"), ("日本", "本日"), ("\udce9", "\udcea")],
)
def test_other_letters_are_another_sentence(one, other):
    assert key(one) != key(other)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=12))
def test_a_set_of_hashes_knows_what_it_has_seen(batches):
    hashes, model = HashSet(), set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(value in model)
            model.add(value)
        assert hashes.add(np.array(batch, dtype=np.uint64)).tolist() == expected
        probe = np.arange(42, dtype=np.uint64)
        assert hashes.contains(probe).tolist() == [value in model for value in range(42)]


def test_hashes_do_not_depend_on_the_process():
    by_hand = int.from_bytes(hashlib.blake2b(b"transduce", digest_size=8).digest(), "little")
    assert as_hashes([digest(b"transduce")]).tolist() == [by_hand]
