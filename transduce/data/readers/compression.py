"""Read and write compressed files. A compressed file that is truncated is an error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import select
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from transduce.errors import DataError, MissingExtra, require

BLOCK = 1 << 20
# Bytes given to a decompressor at a time: even a file of one repeated line takes little memory.
_FEED = 1 << 12


def _zstandard() -> Any:
    return require("zstandard", extra="data").ZstdDecompressor().decompressobj()


TEXT_DEVICES = ("/dev/stdin", "/dev/null", "/dev/tty", "/dev/fd/0")
PIPE_SECONDS = 60  # in which a pipe must give its first bytes

# The file objects of the standard library ignore a damaged second stream, and those of zstandard a
# truncated frame. The decompressor objects below tell when a stream is complete.
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
    """Return the suffix that names the format: `.tsv` of `x.tsv` and of `x.tsv.gz`."""
    return (Path(path.stem) if is_compressed(path) else path).suffix.lower()


def is_compressed(path: Path) -> bool:
    """Return whether the name of a file says that it is compressed."""
    return path.suffix in _DECOMPRESSORS


def is_uncompressed(path: Path) -> bool:
    """Return whether neither the name nor the first bytes of a file say that it is compressed."""
    with path.open("rb") as file:
        return _decompressor(path, file.read(16)) is None


def compression_of(start: bytes) -> str | None:
    """Return the suffix of the compression that the first bytes of a file show, or None."""
    return next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), None)


def compressed(file: BinaryIO, path: Path) -> AbstractContextManager[Any]:
    """Return a file to write into, which compresses if the path says so."""
    if path.suffix == ".zst":
        return require("zstandard", extra="data").open(file, "wb")
    module = {".gz": gzip, ".xz": lzma, ".bz2": bz2}.get(path.suffix)
    return module.open(file, "wb") if module else nullcontext(file)


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a file, about a MiB at a time."""
    lines = 0
    try:
        with _open(path) as file:
            start = file.peek(16)  # `seek` would not work on a pipe
            for block in _read(file, path, _decompressor(path, start)):
                yield block
                lines += block.count(b"\n")
    except EOFError:
        raise DataError(
            f"{path} is cut off: the compressed data ends early, after line {lines:,}; "
            "download or copy it again"
        ) from None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; expected a text file") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; expected a text file") from None
    except (DataError, MissingExtra):
        raise
    except Exception as error:
        # Each decompressor has its own type: zlib.error, LZMAError, OSError, ZstdError.
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read after line {lines:,}: {reason}") from None


def _open(path: Path) -> BufferedReader:
    """Open a file; refuse a device that never ends, and a pipe to which nobody writes."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) and str(path) not in TEXT_DEVICES:
        raise DataError(f"{path} is a device; expected a text file")
    if not stat.S_ISFIFO(mode):
        return path.open("rb")

    # Opening a pipe would wait for a writer, perhaps for ever.
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN | select.POLLHUP)
    if not waiting.poll(PIPE_SECONDS * 1_000):
        os.close(pipe)
        raise DataError(
            f"{path} is a pipe to which nothing was written for {PIPE_SECONDS} seconds; start the "
            "program that writes to it, or name a file"
        )
    os.set_blocking(pipe, True)
    return os.fdopen(pipe, "rb")


def _decompressor(path: Path, start: bytes) -> Callable[[], Any] | None:
    """Return the constructor of a file's decompressor, by its name or its first bytes, or None."""
    if path.suffix in _DECOMPRESSORS:
        return _DECOMPRESSORS[path.suffix]
    suffix = compression_of(start)
    return _DECOMPRESSORS[suffix] if suffix else None


def _read(
    file: BufferedReader, path: Path, new_stream: Callable[[], Any] | None
) -> Iterator[bytes]:
    if new_stream:
        yield from _in_blocks(_decompress(file, new_stream))
        return
    # `read` would wait for a full block, while the writer of a pipe may wait for an answer.
    read = file.read if path.is_file() else file.read1
    yield from iter(lambda: read(BLOCK), b"")


def _decompress(file: BinaryIO, new_stream: Callable[[], Any]) -> Iterator[bytes]:
    """Decompress every stream of a file: parallel compressors write several in a row."""
    data = file.read(_FEED)
    while True:
        stream = new_stream()
        while not stream.eof:
            if not data:
                raise EOFError
            yield stream.decompress(data)
            data = stream.unused_data if stream.eof else file.read(_FEED)

        # Zeros may follow a stream as padding.
        data = data.lstrip(b"\0")
        while not data:
            data = file.read(_FEED)
            if not data:
                return
            data = data.lstrip(b"\0")


def _in_blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces into blocks."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield b"".join(held)
            held = []
            size = 0
    if size:
        yield b"".join(held)
