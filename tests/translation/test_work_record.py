"""The record of unfinished work: the same work continues, other work is refused."""

import pytest

from transduce.errors import DataError
from transduce.translation.work_record import open_record, write_json


def test_the_same_work_continues_and_other_work_is_refused(tmp_path):
    path = tmp_path / "work" / "record.json"
    expected = {"model": ("a", "b"), "search": {"beam_size": 4}}
    assert open_record(path, expected, remedy="remove it") == expected
    write_json(path, expected | {"pairs": 7})
    assert open_record(path, expected, remedy="remove it")["pairs"] == 7
    changed = expected | {"search": {"beam_size": 1}}
    with pytest.raises(DataError, match=r"work was made with another search; remove it$"):
        open_record(path, changed, remedy="remove it")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 1}', b"\xff"])
def test_a_damaged_record_is_named(tmp_path, content):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"record.json is damaged; remove"):
        open_record(path, {"model": 1, "search": {}}, remedy="remove it")
