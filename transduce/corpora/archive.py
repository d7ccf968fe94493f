"""Text out of archives: the named members, one sentence a line. Nothing is ever written where an archive says."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast
from xml.sax.saxutils import unescape

from transduce.errors import DataError

CHUNK = 1 << 20
DAMAGE = (
    *(EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile),
    *(
        NotImplementedError,
        RuntimeError,
        UnicodeDecodeError,
    ),  # unknown or encrypted zip members, text that is none
)
OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


class Damaged(DataError):
    """A file whose content is not what it should be: fetching it again may help."""


def unpack(path: Path, wanted: Mapping[str, BinaryIO]) -> dict[str, int]:
    """Copy the text of each wanted member into its file; the number of lines of each.

    The archive is read to its end, where its checksums are. A file that is no archive is its own only member, "".
    """
    lines: dict[str, int] = {}
    try:
        for name, stream in _members(path, wanted):
            lines[name] = _copy(stream, name or path.name, wanted[name])
    except DAMAGE as error:
        raise Damaged(f"{path} is damaged: {error or type(error).__name__}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be unpacked: {error.strerror or error}") from None
    if not all(lines.values()):
        raise Damaged(
            f"{path} holds no text in {' and '.join(name or 'it' for name in lines if not lines[name])}"
        )
    if missing := sorted(set(wanted) - set(lines)):
        raise Damaged(
            f"{path} does not hold {', '.join(missing)}: not the archive that was expected"
        )
    return lines


def _members(path: Path, wanted: Container[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted files of an archive, in its order."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                _refuse_unsafe(
                    path,
                    entry.filename,
                    entry.filename in wanted and stat.S_ISLNK(entry.external_attr >> 16),
                )
                if entry.filename in wanted:
                    with archive.open(entry) as stream:
                        yield entry.filename, stream
        return
    with path.open("rb") as file, _decompressed(file) as stream:
        if not re.search(r"\.(tar(\.\w+)?|tgz)$", path.name):
            yield "", stream
            return
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                _refuse_unsafe(path, name, name in wanted and not member.isfile())
                if name in wanted:
                    yield name, cast("IO[bytes]", tar.extractfile(member))
        while stream.read(CHUNK):  # a tar ends before its compressed stream does
            pass


def _refuse_unsafe(path: Path, name: str, is_link: bool) -> None:
    if (
        is_link
        or name.startswith(("/", "\\"))
        or ".." in PurePosixPath(name.replace("\\", "/")).parts
    ):
        raise Damaged(
            f"{path} holds {name!r}, a link or a path out of its folder; no corpus has that"
        )


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    start = file.read(6)
    file.seek(0)
    for magic, opener in OPENERS.items():
        if start.startswith(magic):
            return cast("IO[bytes]", opener(file))
    return file


def _copy(stream: IO[bytes], name: str, file: BinaryIO) -> int:
    if name.endswith((".sgm", ".xml")):
        text = stream.read().decode()
        segments = re.findall(r"<seg\b[^>]*>(.*?)</seg>", text, flags=re.DOTALL | re.IGNORECASE)
        lines = [
            " ".join(unescape(segment, {"&quot;": '"', "&apos;": "'"}).split())
            for segment in segments
        ]
        file.writelines(f"{line}\n".encode() for line in lines)
        return len(lines)
    if "train.tags." in name:  # IWSLT: text between lines of mark-up
        return sum(
            file.write(line) > 0
            for line in stream
            if line.strip() and not line.lstrip().startswith(b"<")
        )
    if name.endswith(".gz") and not isinstance(stream, gzip.GzipFile):
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    count, last = 0, b"\n"
    while chunk := stream.read(CHUNK):
        file.write(chunk)
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count if last == b"\n" else count + file.write(b"\n")
