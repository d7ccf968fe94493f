"""What is written is on the disk, and under its name only when it is whole."""

import os
from pathlib import Path

import pytest

from transduce import disk
from transduce.disk import sync, sync_folder, whole_file


@pytest.fixture
def events(monkeypatch):
    """What is forced to the disk, and when a file gets its name."""
    seen = []
    fsync, replace = os.fsync, Path.replace

    def forced(descriptor):
        about = os.fstat(descriptor)
        seen.append((about.st_ino, about.st_size))
        fsync(descriptor)

    monkeypatch.setattr(disk.os, "fsync", forced)
    monkeypatch.setattr(Path, "replace", lambda old, new: seen.append(("replace", new)) or replace(old, new))
    return seen


def test_a_file_is_forced_to_the_disk_with_all_that_was_written(tmp_path, events):
    with (tmp_path / "x").open("wb") as file:
        file.write(b"four")
        sync(file)
    assert events == [((tmp_path / "x").stat().st_ino, 4)]


def test_what_a_link_leads_to_is_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "there").write_bytes(b"old")
    with whole_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_bytes() == b"new"


def test_a_folder_is_forced_to_the_disk(tmp_path, events):
    sync_folder(tmp_path)
    assert [inode for inode, _ in events] == [tmp_path.stat().st_ino]


def test_a_file_gets_its_name_when_all_of_it_is_on_the_disk(tmp_path, events):
    with whole_file(tmp_path / "x") as file:
        file.write(b"four")
        assert not (tmp_path / "x").exists()
    assert events == [((tmp_path / "x").stat().st_ino, 4), ("replace", tmp_path / "x")]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "x") as file:
        file.write(b"new" * (1 // 0))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"old"}


def test_what_a_killed_process_left_is_written_over(tmp_path):
    (tmp_path / ".x.unfinished").write_bytes(b"much more than now")
    with whole_file(tmp_path / "x") as file:
        file.write(b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"new"}
