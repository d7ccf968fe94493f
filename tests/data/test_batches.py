"""Pairs as arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import like_sentences
from transduce.data.batches import PADDING_SEGMENT, TILE, in_order, pack, rung
from transduce.data.tokenizer import EOS
from transduce.errors import DataError


def sentences(batch, ids, segments, positions):
    """Return the sentences of a batch, read back from its arrays alone."""
    found = []
    for row in range(len(ids)):
        for segment in np.unique(segments[row][segments[row] != PADDING_SEGMENT]):
            here = segments[row] == segment
            assert np.array_equal(positions[row][here], np.arange(here.sum()))
            found.append(ids[row][here].tolist())
    return found


@pytest.fixture
def store(make_store):
    return make_store(like_sentences(60, mean=8.0))


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_batch_holds_the_pairs_of_the_store(store, layout):
    section, pad = store.train, store.target_tokenizer.pad
    rows = np.array([7, 3, 50, 11, 0])
    room = TILE * 3
    longest = section.longest
    shapes = ((1, room), (1, room)) if layout == "packed" else ((6, longest), (6, longest + 1))
    batch = pack(section, rows, (pad, pad), shapes)
    assert (batch.source.shape, batch.target.shape) == shapes
    assert {array.dtype for array in vars(batch).values() if isinstance(array, np.ndarray)} == {
        np.dtype("int32"),
        np.dtype("int64"),
    }
    sources = sentences(batch, batch.source, batch.source_segments, batch.source_positions)
    targets = sentences(batch, batch.target, batch.target_segments, batch.target_positions)
    assert sources == [section.source[row].tolist() for row in rows]
    assert targets == [section.target[row].tolist() for row in rows]
    assert all(sentence[-1] == EOS for sentence in sources + targets)
    assert batch.source_tokens == sum(map(len, sources))
    assert batch.target_tokens == sum(map(len, targets))


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_padding_is_a_segment_of_its_own_at_the_end_of_a_row(store, layout):
    pad = store.target_tokenizer.pad
    shape = (1, 512) if layout == "packed" else (8, 200)
    batch = pack(store.train, np.arange(5), (pad, pad), (shape, shape))
    for ids, positions, segments in (
        (batch.source, batch.source_positions, batch.source_segments),
        (batch.target, batch.target_positions, batch.target_segments),
    ):
        assert (np.diff(segments.astype(np.int64)) >= 0).all()
        padding = segments == PADDING_SEGMENT
        assert np.array_equal(padding, ids == pad)
        assert (positions[padding] == 0).all()


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_section_is_read_in_order(store, layout):
    section, pad = store.train, store.target_tokenizer.pad
    tokens = max(TILE, 2 * section.longest)
    batches = list(in_order(section, (pad, pad), tokens, layout))
    assert len(batches) > 2
    assert np.concatenate([batch.pairs for batch in batches]).tolist() == list(range(section.pairs))
    sources = [
        s for b in batches for s in sentences(b, b.source, b.source_segments, b.source_positions)
    ]
    assert sources == [row.tolist() for row in section.source]
    if layout == "packed":
        assert len({batch.source.shape + batch.target.shape for batch in batches}) == 1
        assert np.mean([batch.efficiency for batch in batches[:-1]]) > 0.7
    else:
        assert max(batch.source.size for batch in batches) < 2 * tokens


def test_a_row_is_filled_to_its_last_position(make_store):
    store = make_store(np.full((8, 2), TILE // 4))
    pad = store.target_tokenizer.pad
    batches = list(in_order(store.train, (pad, pad), TILE))
    assert [batch.efficiency for batch in batches] == [(1.0, 1.0)] * 2


def test_a_sentence_that_cannot_fit_is_refused(store):
    pad = store.target_tokenizer.pad
    with pytest.raises(DataError, match="the longest sentence has"):
        list(in_order(store.train, (pad, pad), 4, "padded"))


def test_an_id_that_no_tokenizer_gave_is_refused(store):
    with pytest.raises(DataError, match="it is damaged"):
        pack(store.train, np.arange(20), (10, 10), ((1, 4096), (1, 4096)))


def test_no_pairs_make_a_batch_of_padding(store):
    pad = store.target_tokenizer.pad
    batch = pack(store.train, np.arange(0), (pad, pad), ((1, 128), (1, 128)))
    assert batch.target_tokens == 0
    assert (batch.target_segments == PADDING_SEGMENT).all()


@given(st.integers(1, 10**6), st.sampled_from([4, 8]))
def test_rungs_are_few_and_close(number, steps):
    assert number <= rung(number, steps) <= number * (1 + 2 / steps)
    assert rung(rung(number, steps), steps) == rung(number, steps)
    assert rung(number, steps) <= rung(number + 1, steps)
