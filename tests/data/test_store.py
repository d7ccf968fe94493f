"""Token ids on disk."""

import errno
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.conftest import like_sentences
from transduce.data.store import MANIFEST, OFFSETS, Ragged, Store, token_type
from transduce.data.writer import RaggedWriter
from transduce.errors import DataError
from transduce.storage.sealed_folder import sealed


@given(
    st.lists(st.lists(st.integers(0, 65535), max_size=5), max_size=20),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, database=None)
def test_rows_are_gathered_as_they_were_written(tmp_path_factory, rows, chance):
    folder = tmp_path_factory.mktemp("ragged")
    with RaggedWriter(folder, "x", "<u2") as writer:
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            lengths = np.array([len(row) for row in part], np.int64)
            writer.extend(np.array([value for row in part for value in row], np.int64), lengths)
    assert (
        writer.entries["x.values"]["bytes"]
        == (folder / "x.values").stat().st_size
        == 2 * sum(map(len, rows))
    )
    values, offsets = (
        np.fromfile(folder / "x.values", "<u2"),
        np.fromfile(folder / "x.offsets", OFFSETS),
    )
    ragged = Ragged(values, offsets)
    assert [row.tolist() for row in ragged] == rows
    chosen = [chance.randrange(len(rows)) for _ in range(7)] if rows else []
    index = np.array(chosen, np.int64)
    assert ragged.gather(index).tolist() == [value for row in chosen for value in rows[row]]
    assert ragged.lengths(index).tolist() == [len(rows[row]) for row in chosen]


def test_ids_take_two_bytes_where_they_can():
    assert [token_type(size) for size in (65_536, 65_537)] == ["<u2", "<u4"]


def test_a_store_is_opened_and_verified(make_store):
    store = make_store(like_sentences(50))
    Store(store.path).verify()
    assert store.train.pairs == 50
    assert store.source_tokenizer is store.target_tokenizer
    assert store.validation.pairs == store.test.pairs == 0


def test_a_flipped_bit_anywhere_is_found(make_store):
    path = make_store(like_sentences(50)).path
    chance = random.Random(1)
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for _ in range(6 if whole else 0):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            file.write_bytes(damaged)
            with pytest.raises(DataError, match=r"damaged|format"):
                Store(path).verify()
        file.write_bytes(whole)
    Store(path).verify()


def test_a_file_cut_short_or_missing_is_found_on_opening(make_store):
    path = make_store(like_sentences(50)).path
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        if whole:
            file.write_bytes(whole[: len(whole) // 2])
            with pytest.raises(DataError, match="run transduce prepare"):
                Store(path)
        file.unlink()
        with pytest.raises(DataError, match=r"(run|with) transduce prepare"):
            Store(path)
        file.write_bytes(whole)
    Store(path)


def test_a_folder_without_manifest_or_of_another_format_is_no_store(make_store, tmp_path):
    with pytest.raises(DataError, match="is not a token store: it has no manifest"):
        Store(tmp_path)
    path = make_store(like_sentences(5)).path
    manifest = json.loads((path / MANIFEST).read_text())
    del manifest["sha256"]
    (path / MANIFEST).write_text(json.dumps(sealed({**manifest, "format": 999})))
    with pytest.raises(DataError, match="a token store of format 999, but"):
        Store(path)


def test_training_text_is_not_kept(make_store):
    with pytest.raises(DataError, match="not kept in a store"):
        make_store(like_sentences(5)).train.texts("corpus")
    with pytest.raises(DataError, match="no set called 'x'; known: "):
        make_store(like_sentences(5)).validation.texts("x")


def test_a_full_disk_is_not_hidden(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    writer = RaggedWriter(tmp_path, "x", "<u2")
    with pytest.raises(OSError, match="No space"), writer:
        writer.extend(np.arange(5), np.array([5]))
    assert "x.offsets" not in writer.entries
