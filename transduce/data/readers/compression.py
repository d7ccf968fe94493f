"""The bytes of a file, whatever it is compressed with. An archive that ends early is an error, never a shorter file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from transduce.errors import DataError, MissingExtra, require

BLOCK = 1 << 20
# A decompressor's input at a time: even a file of one repeated line unpacks into bounded memory.
_FEED = 1 << 12


def _zstandard() -> Any:
    return require("zstandard", extra="data").ZstdDecompressor().decompressobj()


# The standard library's file objects take a damaged second stream for trailing rubbish, and zstandard's a cut-off
# frame for the end. The objects below say when a stream is whole.
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".xz": lzma.LZMADecompressor,
    ".bz2": bz2.BZ2Decompressor,
    ".zst": _zstandard,
}
_MAGIC = {
    b"\x1f\x8b\x08": ".gz",
    b"\xfd7zXZ\0": ".xz",
    b"BZh91AY&SY": ".bz2",
    b"\x28\xb5\x2f\xfd": ".zst",
}


def plain_suffix(path: Path) -> str:
    """The suffix that says what a file holds: `.tsv` of `x.tsv` and of `x.tsv.gz`."""
    return (Path(path.stem) if is_compressed(path) else path).suffix.lower()


def is_compressed(path: Path) -> bool:
    """Whether a file's name says so."""
    return path.suffix in _DECOMPRESSORS


def compressed(file: BinaryIO, path: Path) -> AbstractContextManager[Any]:
    """To write a file into, compressed if its name says so."""
    if path.suffix == ".zst":
        return require("zstandard", extra="data").open(file, "wb")
    module = {".gz": gzip, ".xz": lzma, ".bz2": bz2}.get(path.suffix)
    return module.open(file, "wb") if module else nullcontext(file)


def blocks(path: Path) -> Iterator[bytes]:
    """The file's uncompressed bytes, about a MiB at a time."""
    lines = 0
    try:
        with path.open("rb") as file:
            start = file.peek(16)  # a pipe cannot go back
            by_content = next(
                (suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), ""
            )
            new = _DECOMPRESSORS.get(path.suffix, _DECOMPRESSORS.get(by_content))
            # A pipe's writer may wait for an answer.
            read = file.read if path.is_file() else file.read1
            for block in _gathered(_unpacked(file, new)) if new else iter(lambda: read(BLOCK), b""):
                yield block
                lines += block.count(b"\n")
    except EOFError:
        raise DataError(
            f"{path} is cut off: its archive ends early, after line {lines:,}; fetch it again"
        ) from None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; expected a file of text") from None
    except (DataError, MissingExtra):
        raise
    except Exception as error:
        # Each decompressor has its own: zlib.error, LZMAError, OSError, ZstdError.
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read after line {lines:,}: {reason}") from None


def _unpacked(file: BinaryIO, new: Callable[[], Any]) -> Iterator[bytes]:
    """Every stream of the file: parallel compressors write many, one after the other."""
    data = file.read(_FEED)
    while True:
        stream = new()
        while not stream.eof:
            if not data:
                raise EOFError
            yield stream.decompress(data)
            data = stream.unused_data if stream.eof else file.read(_FEED)
        while not (data := data.lstrip(b"\0")):  # zeros may pad the end of a stream
            data = file.read(_FEED)
            if not data:
                return


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)
