import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from transduce.corpora.archive import Damaged, unpack
from transduce.errors import DataError

EN, DE = "One.\nTwo, über.\n".encode(), b"Eins.\nZwei.\n"


def tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def unpacked(path, *members):
    """The text of each member, after checking the numbers of lines."""
    files = {member: io.BytesIO() for member in members}
    lines = unpack(path, files)
    texts = [file.getvalue() for file in files.values()]
    assert [lines[member] for member in members] == [text.count(b"\n") for text in texts]
    assert all(text.endswith(b"\n") for text in texts)
    return texts


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz", ""])
def test_members_come_out_of_a_tar_however_compressed(tmp_path, mode):
    members = {"README": b"x", "training/a.en": EN, "training/a.de": DE, "last": b"y" * 30_000}
    path = tar(tmp_path / f"a.tar.{mode}".rstrip("."), members, f"w:{mode}")
    assert unpacked(path, "training/a.en", "training/a.de") == [EN, DE]


def test_members_come_out_of_a_zip(tmp_path):
    path = zipped(tmp_path / "a.txt.zip", {"a.en": EN, "LICENSE": b"x", "a.de": DE})
    assert unpacked(path, "a.de", "a.en") == [DE, EN]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.en", bytes),
        ("a.en.gz", gzip.compress),
        ("a.en.xz", lzma.compress),
        ("a.en.bz2", bz2.compress),
    ],
)
def test_a_text_of_its_own_is_its_only_member(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(EN))
    assert unpacked(tmp_path / name, "") == [EN]


def test_a_compressed_member_is_decompressed(tmp_path):
    path = tar(
        tmp_path / "giga.tar",
        {"giga.en.gz": gzip.compress(EN), "giga.fr.gz": gzip.compress(DE)},
        "w",
    )
    assert unpacked(path, "giga.en.gz", "giga.fr.gz") == [EN, DE]


def test_a_last_line_without_an_end_gets_one(tmp_path):
    assert unpacked(tar(tmp_path / "a.tgz", {"a": b"one\ntwo"}), "a") == [b"one\ntwo\n"]


def test_only_line_feeds_end_lines(tmp_path):
    text = "one\u2028still\x85one\x0b\x0c\r here\ntwo\n".encode()
    assert unpacked(tar(tmp_path / "a.tgz", {"a": text}), "a") == [text]


def test_segments_of_a_test_set_become_lines(tmp_path):
    sgm = """<srcset setid="newstest" srclang="any"><doc docid="1" genre="news"><hl>
        <seg id="1">R&amp;D at AT&T: &quot;5 &lt; 6&quot;</seg></hl>
        <p><SEG id="2"> spread
        over two lines </SEG><seg id="3"></seg></p></doc></srcset>"""
    path = tar(tmp_path / "a.tgz", {"a.sgm": sgm.encode()})
    assert unpacked(path, "a.sgm") == [b'R&D at AT&T: "5 < 6"\nspread over two lines\n\n']


@pytest.mark.parametrize("entity", ['x SYSTEM "file:///etc/passwd"', "x 'many'"])
def test_a_test_set_that_declares_entities_is_refused(tmp_path, entity):
    """Nothing was ever read through one, but the text would have &x; in it."""
    sgm = f'<!DOCTYPE srcset [<!entity {entity}>]><srcset><seg id="1">&x;</seg></srcset>'
    path = tar(tmp_path / "a.tgz", {"a.sgm": sgm.encode()})
    with pytest.raises(Damaged, match=r"a\.sgm declares entities of its own"):
        unpacked(path, "a.sgm")


def test_mark_up_around_talks_is_left_out(tmp_path):
    talk = b"<url>http://x</url>\n<title>T</title>\n One line.\nAnother.\n</transcript>\n\n"
    path = zipped(tmp_path / "a.zip", {"en-de/train.tags.en-de.en": talk})
    assert unpacked(path, "en-de/train.tags.en-de.en") == [b" One line.\nAnother.\n"]


@pytest.mark.parametrize("name", ["a.tgz", "a.zip", "a.gz"])
def test_no_changed_or_missing_byte_gives_a_wrong_text(tmp_path, name):
    """Every byte of an archive is changed, and the archive cut at every place."""
    if name == "a.gz":
        (tmp_path / name).write_bytes(gzip.compress(EN, mtime=0))
    else:
        (tar if name == "a.tgz" else zipped)(tmp_path / name, {"a": EN})
    member = "" if name == "a.gz" else "a"
    whole = (tmp_path / name).read_bytes()
    changed = [
        whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :]
        for place in range(len(whole))
    ]
    refused = 0
    for bad in [*changed, *(whole[:length] for length in range(len(whole)))]:
        (tmp_path / name).write_bytes(bad)
        try:
            texts = unpacked(tmp_path / name, member)
        except DataError:
            refused += 1
        else:
            assert texts == [EN]  # the byte said nothing of the text
    assert refused > len(whole)


@pytest.mark.parametrize("name", ["../a.en", "/tmp/a.en", "b/../../a.en", "..\\a.en", "\\a.en"])
def test_a_path_out_of_the_archive_is_refused(tmp_path, name):
    for path in (
        tar(tmp_path / "a.tgz", {"a.en": EN, name: DE}),
        zipped(tmp_path / "a.zip", {"a.en": EN, name: DE}),
    ):
        with pytest.raises(Damaged, match="a path out of its folder"):
            unpacked(path, "a.en")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "a.zip"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_a_wanted_member_that_is_no_file_is_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        info = tarfile.TarInfo("a.en")
        info.type, info.linkname = kind, "/etc/hosts"
        archive.addfile(info)
    with pytest.raises(Damaged, match="a link"):
        unpacked(tmp_path / "a.tgz", "a.en")


def test_a_link_in_a_zip_is_refused(tmp_path):
    entry = zipfile.ZipInfo("a.en")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(entry, "/etc/hosts")
    with pytest.raises(Damaged, match="a link"):
        unpacked(tmp_path / "a.zip", "a.en")


def test_a_missing_member_is_named(tmp_path):
    with pytest.raises(Damaged, match=r"does not hold b\.en"):
        unpacked(tar(tmp_path / "a.tgz", {"a.en": EN}), "a.en", "b.en")


def test_a_text_without_a_line_is_refused(tmp_path):
    (tmp_path / "a.en.gz").write_bytes(b"")
    for path, member in (
        (tmp_path / "a.en.gz", ""),
        (tar(tmp_path / "a.tgz", {"a.en": b""}), "a.en"),
    ):
        with pytest.raises(Damaged, match="holds no text"):
            unpacked(path, member)


def test_an_error_page_is_no_archive(tmp_path):
    for name in ("a.tgz", "a.zip", "a.en.gz"):
        (tmp_path / name).write_bytes(b"<html>Please log in</html>\n" * 100)
        with pytest.raises(Damaged):
            unpacked(tmp_path / name, "" if name == "a.en.gz" else "a.en")


def test_a_missing_archive_is_one_clear_line(tmp_path):
    with pytest.raises(DataError, match="cannot be unpacked: No such file"):
        unpacked(tmp_path / "a.tgz", "a")
