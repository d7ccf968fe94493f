"""Extract text from archives: the named members, one sentence a line.

Text is written only to files that the caller opened, never to a path that an archive names.
"""

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
# The errors that the libraries raise for a damaged archive.
DAMAGE = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,  # an unknown compression inside a zip file
    RuntimeError,  # an encrypted member of a zip file
    UnicodeDecodeError,  # a text that is not UTF-8
)
OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


class Damaged(DataError):
    """A file does not have the expected content; downloading it again may help."""


def unpack(path: Path, wanted: Mapping[str, BinaryIO]) -> dict[str, int]:
    """Copy the text of each wanted member into its file, and return the number of lines of each.

    The archive is read to its end, which verifies its checksums. The only member of a file that is
    not an archive is "".
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
        empty = [name or "it" for name in lines if not lines[name]]
        raise Damaged(f"{path} holds no text in {' and '.join(empty)}")
    missing = sorted(set(wanted) - set(lines))
    if missing:
        raise Damaged(
            f"{path} does not hold {', '.join(missing)}; it is not the archive that was expected"
        )
    return lines


def _members(path: Path, wanted: Container[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the wanted members of an archive, in its order, with their names."""
    if path.suffix == ".zip":
        yield from _zip_members(path, wanted)
        return
    with path.open("rb") as file, _decompressed(file) as stream:
        if re.search(r"\.(tar(\.\w+)?|tgz)$", path.name):
            yield from _tar_members(path, stream, wanted)
        else:
            yield "", stream


def _zip_members(path: Path, wanted: Container[str]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            name = entry.filename
            is_link = stat.S_ISLNK(entry.external_attr >> 16)
            _refuse_unsafe(path, name, name in wanted and is_link)
            if name in wanted:
                with archive.open(entry) as stream:
                    yield name, stream


def _tar_members(
    path: Path, stream: IO[bytes], wanted: Container[str]
) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            _refuse_unsafe(path, name, name in wanted and not member.isfile())
            if name in wanted:
                yield name, cast("IO[bytes]", tar.extractfile(member))
    # The tar ends before its compressed stream does, which has the checksum at its end.
    while stream.read(CHUNK):
        pass


def _refuse_unsafe(path: Path, name: str, is_link: bool) -> None:
    """Raise an error for a member that is a link, or whose path leads out of the archive."""
    absolute = name.startswith(("/", "\\"))
    leads_out = ".." in PurePosixPath(name.replace("\\", "/")).parts
    if is_link or absolute or leads_out:
        raise Damaged(
            f"{path} holds {name!r}, a link or a path out of its folder, which no corpus has"
        )


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    """Return the uncompressed content of a file, recognized by its first bytes."""
    start = file.read(6)
    file.seek(0)
    for magic, opener in OPENERS.items():
        if start.startswith(magic):
            return cast("IO[bytes]", opener(file))
    return file


def _copy(stream: IO[bytes], name: str, file: BinaryIO) -> int:
    """Copy the sentences of a member into a file, and return the number of lines."""
    if name.endswith((".sgm", ".xml")):
        return _copy_segments(stream, name, file)
    if "train.tags." in name:
        return _copy_untagged(stream, file)
    if name.endswith(".gz") and not isinstance(stream, gzip.GzipFile):
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    return _copy_lines(stream, file)


def _copy_segments(stream: IO[bytes], name: str, file: BinaryIO) -> int:
    """Copy the segments of a WMT or IWSLT test set."""
    text = stream.read().decode()
    if re.search(r"<!ENTITY\b", text, re.IGNORECASE):
        raise Damaged(f"{name} declares entities of its own, which no test set does")
    segments = re.findall(r"<seg\b[^>]*>(.*?)</seg>", text, flags=re.DOTALL | re.IGNORECASE)
    for segment in segments:
        words = unescape(segment, {"&quot;": '"', "&apos;": "'"}).split()
        file.write(" ".join(words).encode() + b"\n")
    return len(segments)


def _copy_untagged(stream: IO[bytes], file: BinaryIO) -> int:
    """Copy the text of an IWSLT training set, which has lines of markup between it."""
    count = 0
    for line in stream:
        if line.strip() and not line.lstrip().startswith(b"<"):
            file.write(line)
            count += 1
    return count


def _copy_lines(stream: IO[bytes], file: BinaryIO) -> int:
    """Copy a text; a line end is added if the last line has none."""
    count = 0
    last_byte = b"\n"
    while chunk := stream.read(CHUNK):
        file.write(chunk)
        count += chunk.count(b"\n")
        last_byte = chunk[-1:]
    if last_byte != b"\n":
        file.write(b"\n")
        count += 1
    return count
