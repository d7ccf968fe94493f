"""A file is forced to the disk, and has its name only when it is complete."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.storage import disk
from transduce.storage.disk import sync, sync_folder, whole_file


@pytest.fixture
def events(monkeypatch):
    """Record what is forced to the disk, and when a file gets its name."""
    seen = []
    fsync, replace = os.fsync, Path.replace

    def forced(descriptor):
        about = os.fstat(descriptor)
        seen.append((about.st_ino, about.st_size))
        fsync(descriptor)

    monkeypatch.setattr(disk.os, "fsync", forced)
    monkeypatch.setattr(
        Path, "replace", lambda old, new: seen.append(("replace", new)) or replace(old, new)
    )
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


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / ("x" * 250)  # there is no room for a longer, unfinished name
    with pytest.raises(OSError, match="File name too long") as caught, whole_file(path):
        pass
    assert caught.value.filename == str(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_an_error_of_a_device_names_it():
    device = Path("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught, whole_file(device) as file:
        file.write(b"x")
    assert caught.value.filename == str(device)


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


def test_two_writers_of_one_file_do_not_share_it(tmp_path):
    """The file of the last writer stays, and nothing of the other one remains."""
    with whole_file(tmp_path / "x") as first:
        first.write(b"first ")
        with whole_file(tmp_path / "x") as second:
            second.write(b"second")
        assert (tmp_path / "x").read_bytes() == b"second"
        first.write(b"writer")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"first writer"}


def test_what_a_killed_process_left_is_removed(tmp_path):
    code = "import os, sys, pathlib; from transduce.storage.disk import whole_file\n"
    code += "with whole_file(pathlib.Path(sys.argv[1])) as file: file.write(b'much'); file.flush(); os._exit(9)"
    for name in ("x", "xy"):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=False)
        assert done.returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    with whole_file(tmp_path / "x") as file:
        file.write(b"new")
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"x", ".xy.unfinished"}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_mode_and_a_new_one_has_that_of_its_neighbours(tmp_path, mode):
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "x").chmod(mode)
    (tmp_path / "neighbour").write_bytes(b"")
    for name in ("x", "new"):
        with whole_file(tmp_path / name) as file:
            file.write(b"new")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert (modes["x"], modes["new"]) == (mode, modes["neighbour"])


def test_a_system_without_file_locks_is_named_in_one_line():
    code = "import sys; sys.modules['fcntl'] = None; import transduce; transduce.Translator"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "TransduceError: this system has no fcntl" in done.stderr
    assert "WSL" in done.stderr
