"""Shards: every line in exactly one, in order, and nothing mixed or lost."""

import gzip
import random
from dataclasses import replace

import pytest

from transduce.errors import DataError, InputError
from transduce.translation import shards
from transduce.translation.documents.text_encoding import Encoding
from transduce.translation.shards import cut, join, read_shard, seekable_text, text_blocks
from transduce.translation.streams import Format, arriving


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(shards, "LINES", 20)


def write(path, content):
    path.write_bytes(content)
    return path


def test_every_line_is_in_exactly_one_shard(tmp_path):
    chance = random.Random(1)
    for lines in (0, 1, 20, 48, 49, 300):
        words = [
            chance.choice([b"", b" ", b"one", b"two\r", b"\xe2\x80\xa8"]) for _ in range(lines)
        ]
        for end in (b"", b"\n"):
            content = b"\n".join([*words, b"last"]) + end
            path = write(tmp_path / "text", content)
            cuts = list(cut(path, Format()))
            read = [line for shard in cuts for line in read_shard(path, shard)]
            assert read == [*(word + b"\n" for word in words), b"last" + end]
            assert [shard.number for shard in cuts] == list(range(len(cuts)))
            first_lines = [1 + sum(other.lines for other in cuts[:n]) for n in range(len(cuts))]
            assert [shard.first_line for shard in cuts] == first_lines


def test_empty_lines_at_the_end_count(tmp_path):
    path = write(tmp_path / "text", b"one\n\n\n")
    (shard,) = cut(path, Format())
    assert read_shard(path, shard) == [b"one\n", b"\n", b"\n"]
    assert list(cut(write(tmp_path / "empty", b""), Format())) == []


def test_lines_that_a_stream_translates_together_stay_together(tmp_path):
    content = b"one\n" * 5_000
    path = write(tmp_path / "text", content)
    sizes = [size for shard in cut(path, Format()) for size in shard.chunks]
    assert sizes == [len(chunk) for chunk in arriving([content])]
    assert all(shard.lines >= 20 for shard in cut(path, Format()))


def test_the_lines_of_an_icu_message_are_in_one_chunk(tmp_path):
    lines = [b"one\n"] * 15 + [b"{n, plural,\n", b" one {# file}\n", b" other {# files}}\n"]
    path = write(tmp_path / "text", b"".join(lines * 3))
    sizes = [size for shard in cut(path, Format()) for size in shard.chunks]
    assert sizes == [16 + 32, 6]


def test_a_text_that_changed_is_refused(tmp_path):
    path = write(tmp_path / "text", b"one\n" * 100)
    *_, last = cut(path, Format())
    write(path, b"one\n" * 99 + b"two\n")
    with pytest.raises(DataError, match=r"text has changed since the command began: line 49 and"):
        read_shard(path, last)


def test_bytes_that_are_not_utf8_are_found_before_any_work(tmp_path):
    path = write(tmp_path / "text", b"one\n" * 60 + b"t\xffo\n")
    with pytest.raises(InputError, match=r"text:61 is not UTF-8 \(byte 0xff at 2\)"):
        list(cut(path, Format()))
    assert sum(shard.lines for shard in cut(path, Format(errors="replace"))) == 61


def test_compressed_text_is_copied_once(tmp_path):
    plain = write(tmp_path / "text.en", b"one\ntwo\n")
    assert seekable_text(plain, tmp_path, Format()) == plain
    for name in ("text.en.gz", "no-suffix"):
        packed = write(tmp_path / name, gzip.compress(b"one\ntwo\n"))
        copy = seekable_text(packed, tmp_path / name[:2], Format())
        assert copy.read_bytes() == b"one\ntwo\n"
        write(copy, b"kept")
        assert seekable_text(packed, tmp_path / name[:2], Format()).read_bytes() == b"kept"


def test_the_encoding_of_a_text_stays(tmp_path):
    content = "one\r\ntwo".encode("utf-16")
    source = write(tmp_path / "text", content)
    text = seekable_text(source, tmp_path / "work", Format())
    (shard,) = cut(source, Format())
    lines = read_shard(text, shard)
    assert lines == [b"one\r\n", b"two"]
    (tmp_path / "shards").mkdir()
    write(shard.file(tmp_path / "shards"), b"".join(lines))
    encoding, _ = text_blocks(source, Format())
    join([shard], tmp_path / "shards", tmp_path / "out", encoding)
    assert (tmp_path / "out").read_bytes() == content


def test_a_shard_that_is_missing_or_cut_off_is_named(tmp_path):
    path = write(tmp_path / "text", b"one\n" * 60)
    first, second = cut(path, Format())
    write(first.file(tmp_path), b"eins\n" * first.lines)
    with pytest.raises(
        DataError, match=r"0000001.txt is missing.* a folder that all machines share"
    ):
        join([first, second], tmp_path, tmp_path / "out", Encoding())
    write(second.file(tmp_path), b"eins\n" * (second.lines - 1))
    with pytest.raises(DataError, match=r"0000001.txt has \d+ lines, expected"):
        join([first, second], tmp_path, tmp_path / "out", Encoding())
    assert not (tmp_path / "out").exists()


def test_the_hash_of_a_text_depends_on_every_shard(tmp_path):
    first, second = cut(write(tmp_path / "text", b"one\n" * 60), Format())
    other = replace(second, sha256="0" * 64)
    texts = ([first, second], [first, other], [first], [second, first])
    assert len({shards.text_sha256(text) for text in texts}) == 4
