import hashlib
import json
import random
import re
import resource
import time
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate

import pytest

from tests.corpora.scripted_server import answer, scripted_server, status  # noqa: F401
from transduce.corpora import download
from transduce.corpora.download import Patience, fetch
from transduce.corpora.lockfile import LOCK, Lock
from transduce.data.text_folder import whole_file
from transduce.errors import DataError

CONTENT = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
QUICK = Patience(tries=3, timeout=0.3, back_off=0.01, longest_wait=0.05)


@pytest.fixture
def get(tmp_path):
    """Fetch an address into tmp_path as `file`, with little patience."""

    def run(address, *, lock=None, patience=QUICK, **options):
        lock = lock or Lock(tmp_path)
        path = fetch(address, "file", tmp_path, lock, patience=patience, **options)
        lock.save()
        return path

    return run


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(LOCK))


def test_a_file_arrives_and_its_size_and_hash_are_locked(server, get, tmp_path):
    address = server.says("/file", answer(CONTENT))
    assert get(address).read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["file"]
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    locked = json.loads((tmp_path / LOCK).read_text())["files"]["file"]
    assert locked == {"address": address, "bytes": len(CONTENT), "sha256": sha256}


def test_a_file_that_is_there_is_not_fetched_again(server, get):
    address = server.says("/file", answer(CONTENT))
    get(address)
    get(address)
    assert len(server.requests) == 1


def test_a_cut_connection_is_taken_up_where_it_ended(server, get):
    address = server.says("/file", answer(CONTENT, cut=100_000), answer(CONTENT))
    assert get(address).read_bytes() == CONTENT
    second = server.requests[1][1]
    assert (second["Range"], second["If-Range"]) == ("bytes=100000-", '"first"')


def test_a_later_command_goes_on_with_what_an_earlier_one_left(server, get, tmp_path):
    address = server.says("/file", answer(CONTENT, cut=70_000), answer(CONTENT))
    with pytest.raises(
        DataError,
        match=r"ended after 70,000 of 300,000 bytes \(1 tries\); run the same command later",
    ):
        get(address, patience=replace(QUICK, tries=1))
    assert leftovers(tmp_path) == ["file.part", "file.part.tag"]
    assert get(address).read_bytes() == CONTENT
    assert server.requests[1][1]["Range"] == "bytes=70000-"
    assert leftovers(tmp_path) == ["file"]


def test_tries_that_make_headway_do_not_use_up_patience(server, get):
    cuts = [answer(CONTENT, cut=20_000) for _ in range(14)]
    address = server.says("/file", *cuts, answer(CONTENT))
    assert get(address, patience=replace(QUICK, headway=10_000)).read_bytes() == CONTENT
    assert len(server.requests) == 15


def test_a_server_without_ranges_is_asked_from_the_start(server, get):
    cut = answer(CONTENT, cut=100_000, ranges=False)
    address = server.says("/file", cut, answer(CONTENT, ranges=False))
    assert get(address).read_bytes() == CONTENT


@pytest.mark.parametrize("if_range", [True, False])
def test_a_file_changed_between_tries_is_never_mixed_with_the_old(server, get, if_range):
    new = answer(OTHER, tag='"second"', if_range=if_range)
    address = server.says("/file", answer(CONTENT, cut=100_000), new)
    assert get(address).read_bytes() == OTHER


def test_a_kill_at_the_worst_moment_mixes_no_editions(server, get, monkeypatch):
    @contextmanager
    def killed_afterwards(path):
        with whole_file(path) as file:
            yield file
        raise KeyboardInterrupt

    cut, new = answer(CONTENT, cut=100_000), answer(OTHER, tag='"second"')
    address = server.says("/file", cut, new)
    with pytest.raises(DataError):
        get(address, patience=replace(QUICK, tries=1))
    monkeypatch.setattr(download, "whole_file", killed_afterwards)
    with pytest.raises(KeyboardInterrupt):
        get(address)
    monkeypatch.setattr(download, "whole_file", whole_file)
    assert get(address).read_bytes() == OTHER


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_a_sure_sign_of_the_edition_nothing_is_resumed(server, get, tag):
    address = server.says("/file", answer(CONTENT, cut=100_000, tag=tag), answer(OTHER, tag=tag))
    assert get(address).read_bytes() == OTHER
    assert "Range" not in server.requests[1][1]


def test_a_partial_reply_that_starts_elsewhere_is_not_used(server, get):
    wrong = answer(CONTENT, first_byte=50_000)
    address = server.says("/file", answer(CONTENT, cut=100_000), wrong, answer(CONTENT))
    assert get(address).read_bytes() == CONTENT
    assert "Range" not in server.requests[2][1]


def test_a_part_longer_than_the_file_is_thrown_away(server, get):
    address = server.says(
        "/file", answer(CONTENT, cut=100_000), answer(CONTENT[:50_000], if_range=False)
    )
    assert get(address).read_bytes() == CONTENT[:50_000]


def test_a_file_shorter_than_declared_is_refused(server, get, tmp_path):
    address = server.says("/file", answer(CONTENT, declared=400_000, ranges=False))
    with pytest.raises(DataError, match=r"ended after 300,000 of 400,000 bytes \(3 tries\)"):
        get(address)
    assert "file" not in leftovers(tmp_path)


def test_a_file_of_undeclared_length_arrives(server, get):
    assert get(server.says("/file", answer(CONTENT, declared=False))).read_bytes() == CONTENT


def test_a_chunked_file_that_ends_early_is_tried_again(server, get):
    address = server.says(
        "/file", answer(CONTENT, chunked=True, cut=1_000), answer(CONTENT, chunked=True)
    )
    assert get(address).read_bytes() == CONTENT


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_missing_file_is_one_clear_line_at_once(server, get, tmp_path, code):
    with pytest.raises(DataError, match=rf"answered {code} \w.*--mirror") as error:
        get(server.says("/file", status(code)))
    assert "\n" not in str(error.value)
    assert len(server.requests) == 1
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503])
def test_a_server_in_trouble_is_asked_again(server, get, code):
    assert (
        get(server.says("/file", status(code), status(code), answer(CONTENT))).read_bytes()
        == CONTENT
    )


def test_a_server_that_stays_in_trouble_is_given_up(server, get):
    with pytest.raises(DataError, match=r"answered 500 .*\(3 tries\)"):
        get(server.says("/file", status(500)))
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        ("2", 2.0),
        ("9999", 5.0),
        (formatdate(time.time() + 9_999, usegmt=True), 5.0),
        ("soon", 0.01),
        ("-3", 0.01),
    ],
    ids=[
        "seconds",
        "too many seconds",
        "a date",
        "no number",
        "before now",
    ],  # a date in a name would change
)
def test_the_wish_to_be_left_alone_is_heeded_up_to_a_limit(server, get, monkeypatch, asked, waited):
    waits = []
    monkeypatch.setattr(download.time, "sleep", waits.append)
    address = server.says("/file", status(503, Retry_After=asked), answer(CONTENT))
    get(address, patience=replace(QUICK, longest_wait=5.0))
    assert waits == [waited]


def test_waits_grow(server, get, monkeypatch):
    waits = []
    monkeypatch.setattr(download.time, "sleep", waits.append)
    with pytest.raises(DataError):
        get(server.says("/file", status(500)), patience=Patience(tries=5))
    assert waits == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    "reply", [answer(CONTENT, stall=0), answer(CONTENT, stall=1_000), answer(CONTENT, drip=0.05)]
)
def test_a_server_that_stalls_or_drips_is_given_up_in_time(server, get, reply):
    start = time.monotonic()
    with pytest.raises(DataError, match=r"cannot be downloaded: .*tries"):
        get(server.says("/file", reply), patience=replace(QUICK, tries=2))
    assert time.monotonic() - start < 5


def test_a_server_whose_headers_never_end_is_given_up_in_time(server, get):
    def drip_headers(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not handler.server.over.wait(0.05):
            handler.wfile.write(b"x")

    start = time.monotonic()
    with pytest.raises(DataError, match=r"no complete headers in \d+ seconds \(2 tries\)"):
        get(server.says("/file", drip_headers), patience=replace(QUICK, tries=2))
    assert time.monotonic() - start < 5


def test_a_stalled_download_goes_on(server, get):
    assert (
        get(server.says("/file", answer(CONTENT, stall=90_000), answer(CONTENT))).read_bytes()
        == CONTENT
    )
    assert server.requests[1][1]["Range"] == "bytes=90000-"


def test_a_server_that_is_not_there_is_one_clear_line(server, get):
    server.server_close()
    with pytest.raises(DataError, match=r"cannot be downloaded: .*refused"):
        get(f"{server.address}/file")


def test_a_changed_local_file_is_refused(server, get, tmp_path):
    address = server.says("/file", answer(CONTENT))
    get(address).write_bytes(OTHER)
    expected, found = (hashlib.sha256(content).hexdigest()[:16] for content in (CONTENT, OTHER))
    with pytest.raises(
        DataError,
        match=rf"SHA-256 {found}.*{LOCK} expects 300,000 and {expected}.*--accept-changes",
    ):
        get(address)
    get(address, lock=Lock(tmp_path, accept_changes=True))
    assert get(address).read_bytes() == OTHER


def test_a_file_changed_at_its_source_is_refused_before_it_is_fetched(server, get, tmp_path):
    address = server.says("/file", answer(CONTENT), answer(OTHER[:1_000], tag='"second"'))
    get(address).unlink()
    with pytest.raises(
        DataError, match=r"has 1,000 bytes now, but transduce-data.lock expects 300,000"
    ):
        get(address)
    assert get(address, lock=Lock(tmp_path, accept_changes=True)).read_bytes() == OTHER[:1_000]


def test_a_file_of_the_same_size_but_other_content_is_refused(server, get):
    address = server.says("/file", answer(CONTENT), answer(OTHER, tag='"second"'))
    get(address).unlink()
    with pytest.raises(DataError, match="SHA-256"):
        get(address)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"files": 3}', '{"files": {"file": {"bytes": 1}}}', "\xff"]
)
def test_a_broken_lock_is_not_ignored(tmp_path, text):
    (tmp_path / LOCK).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="is not a lock file; restore it"):
        Lock(tmp_path)


def test_a_mirror_stands_in_for_the_network(server, get, tmp_path):
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "file").write_bytes(CONTENT)
    address = server.says("/file", answer(OTHER))
    assert get(address, mirror=tmp_path / "mirror").read_bytes() == CONTENT
    assert server.requests == []
    with pytest.raises(
        DataError, match=re.escape(f"elsewhere/file does not exist; put there what {address} holds")
    ):
        get(address, mirror=tmp_path / "elsewhere")


def test_too_little_room_is_noticed_beforehand(server, get, monkeypatch, tmp_path):
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("usage", (), {"free": 1_000}))
    with pytest.raises(DataError, match="no room for 300,000 bytes of file; make room"):
        get(server.says("/file", answer(CONTENT)))
    assert leftovers(tmp_path) == []


def test_a_disk_that_takes_no_more_is_one_clear_line(server, get, tmp_path):
    address = server.says("/file", answer(CONTENT))
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, usual[1]))
    try:
        with pytest.raises(
            DataError, match=r"file.part cannot be written: the file size limit is reached"
        ):
            get(address)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert not (tmp_path / "file").exists()
    assert get(address).read_bytes() == CONTENT


def test_a_terminal_sees_a_bar(server, get, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    get(server.says("/file", answer(CONTENT)))
    assert "300.0/300.0 kB" in capsys.readouterr().err
