"""Documents that are ZIP archives: read with a limit on their size, written with parts replaced."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from transduce.errors import InputError

MOST_PARTS = 20_000
_OLE = b"\xd0\xcf\x11\xe0"  # the start of an old or encrypted document of Microsoft Office
_IS_ENCRYPTED = 0x1
# Those of documents. Others are always unpacked completely, whatever size they declare.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Archive:
    """The parts of a document."""

    def __init__(self, data: bytes, name: str, most_bytes: int) -> None:
        self._data = data
        self._name = name
        if data.startswith(_OLE):
            raise InputError(
                f"{name} is protected by a password, or in an old format; save it as a new file "
                "without a password"
            )
        with self._opened() as archive:
            self._infos = archive.infolist()
        size = sum(info.file_size for info in self._infos)
        if size > most_bytes or len(self._infos) > MOST_PARTS:
            raise InputError(
                f"{name} unpacks to {size:,} bytes in {len(self._infos):,} parts; expected at "
                f"most {most_bytes:,} bytes and {MOST_PARTS:,} parts"
            )
        if len(set(self.names)) < len(self.names):
            raise InputError(f"{name} is damaged: it has two parts of the same name")
        if any(info.flag_bits & _IS_ENCRYPTED for info in self._infos):
            raise InputError(f"{name} is protected by a password; remove it first")
        if any(info.compress_type not in _METHODS for info in self._infos):
            raise InputError(f"{name} is compressed with an unusual method; save it as a new file")

    @property
    def names(self) -> list[str]:
        """The names of all parts."""
        return [info.filename for info in self._infos]

    def read(self, part: str) -> bytes:
        """Return the content of a part."""
        with self._opened() as archive:
            return _read(archive, archive.getinfo(part))

    def replaced(self, parts: Mapping[str, bytes]) -> bytes:
        """Return the archive with new contents of some parts; order and settings stay."""
        file = io.BytesIO()
        with self._opened() as archive, zipfile.ZipFile(file, "w") as written:
            written.comment = archive.comment
            for info in self._infos:
                new = parts.get(info.filename)
                written.writestr(info, _read(archive, info) if new is None else new)
        return file.getvalue()

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
                yield archive
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            ValueError,
            OSError,
        ) as error:
            raise InputError(
                f"{self._name} is damaged, or not of the kind that its name says ({error})"
            ) from None


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return a part, of which no more is unpacked than the size that it declares.

    `ZipFile.read` unpacks everything before it compares the size, so a file that declares less than
    it has could fill the memory.
    """
    with archive.open(info) as part:
        return part.read(info.file_size)
