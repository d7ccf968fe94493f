"""Download a file, or find it in a mirror folder, and check it against the lock file.

An interrupted download is resumed, failures are retried, and the file appears when it is complete.
"""

from __future__ import annotations

import http.client
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transduce.corpora.lockfile import LOCK, Lock
from transduce.corpora.request import TryAgain, send
from transduce.data.text_folder import whole_file
from transduce.errors import DataError
from transduce.storage.disk import describe_failure, sync

CHUNK = 1 << 16
PARTIAL_CONTENT = 206


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for a server, in seconds and bytes."""

    tries: int = 6  # in a row, without headway
    headway: int = 1 << 20  # the bytes that count as headway
    timeout: float = 30.0  # without a byte, or with fewer than `trickle`
    trickle: int = 1 << 10
    back_off: float = 1.0  # before the second try; doubled after every other one
    longest_wait: float = 60.0  # even if a server asks for more


def fetch(
    address: str,
    name: str,
    folder: Path,
    lock: Lock,
    *,
    mirror: Path | None = None,
    patience: Patience | None = None,
) -> Path:
    """Return the path of a file, and download it if necessary.

    Args:
        address: The address to download from.
        name: The name of the file.
        folder: The folder for downloads.
        lock: The sizes and checksums that files must have.
        mirror: A folder that has the file already; nothing is downloaded then.
        patience: How long to wait for a server.
    """
    path = (mirror or folder) / name
    if mirror is None and not path.exists():
        _download(address, path, lock.expected_bytes(name), patience or Patience())
    elif not path.exists():
        raise DataError(
            f"{path} does not exist; put there what {address} holds, or leave out --mirror"
        )
    lock.check(name, path, address)
    return path


def _download(address: str, path: Path, expected_bytes: int | None, patience: Patience) -> None:
    """Download a file, in as many tries as bring it further."""
    part = path.with_name(f"{path.name}.part")
    fruitless_tries = 0
    furthest = 0
    wait = patience.back_off
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _try_once(address, part, expected_bytes, patience)
            part.replace(path)
            _validator_file(part).unlink(missing_ok=True)
            return
        except TryAgain as failure:
            if failure.from_the_start:
                part.unlink(missing_ok=True)

            # Tries that bring the file further may go on for ever; others are counted.
            size = part.stat().st_size if part.exists() else 0
            made_headway = size >= furthest + patience.headway
            fruitless_tries = 1 if made_headway else fruitless_tries + 1
            furthest = max(size, furthest)
            if fruitless_tries >= patience.tries:
                raise DataError(
                    f"{address} cannot be downloaded: {failure} ({fruitless_tries} tries); run the "
                    "same command later to go on, or download it by other means as "
                    f"{path.name} and pass its folder as --mirror"
                ) from None
            time.sleep(min(wait if failure.wait is None else failure.wait, patience.longest_wait))
            wait = patience.back_off * 2**fruitless_tries
        except OSError as error:
            raise DataError(
                f"{part} cannot be written: {describe_failure(error)}; make room, then run again"
            ) from None


def _try_once(address: str, part: Path, expected_bytes: int | None, patience: Patience) -> None:
    """Append what is missing to `part`, or start again if the server has another file now."""
    # Ask for the rest only if the server can tell whether it is the same file (RFC 9110 §13.1.5).
    validator = ""
    if _validator_file(part).exists() and part.exists():
        validator = _validator_file(part).read_text(encoding="utf-8")
    start = part.stat().st_size if validator else 0
    headers = {"User-Agent": "transduce", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}

    with send(address, headers, patience.timeout) as response:
        is_rest = response.status == PARTIAL_CONTENT
        if not is_rest or _validator(response) not in ("", validator):
            start = 0
        total = _total_bytes(response, start)
        if is_rest and total is None:
            raise TryAgain("the server sent another part than was asked for", from_the_start=True)
        if expected_bytes is not None and total not in (None, expected_bytes):
            raise DataError(
                f"{address} has {total:,} bytes now, but {LOCK} expects {expected_bytes:,}; it was "
                "changed: pass --accept-changes to use the new edition"
            )
        _receive(response, part, start, total, patience)


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    start: int,
    total: int | None,
    patience: Patience,
) -> None:
    """Append the content of a response to `part`, which has `start` bytes already."""
    if total is not None and total - start > shutil.disk_usage(part.parent).free:
        raise DataError(
            f"{part.parent} has no room for {total - start:,} bytes of {part.stem}; "
            "make room, then run again"
        )

    # Remove an old part before writing the new validator: with it, the old part would be resumed.
    if not start:
        part.unlink(missing_ok=True)
    with whole_file(_validator_file(part)) as file:
        file.write(_validator(response).encode())

    received = start
    recently_received = 0
    recently = time.monotonic()
    with part.open("ab") as file, _progress(part.stem, start, total) as advance:
        for chunk in _chunks(response):
            file.write(chunk)
            received += len(chunk)
            recently_received += len(chunk)
            advance(len(chunk))
            if time.monotonic() - recently > patience.timeout:
                if recently_received < patience.trickle:
                    raise TryAgain(f"{recently_received} bytes in {patience.timeout:.0f} seconds")
                recently_received = 0
                recently = time.monotonic()
        sync(file)
    if total is not None and received != total:
        raise TryAgain(f"the connection ended after {received:,} of {total:,} bytes")


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read1(CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise TryAgain(error) from None


def _validator_file(part: Path) -> Path:
    """Return the file that keeps the validator of a partial download."""
    return part.with_name(f"{part.name}.tag")


def _validator(response: http.client.HTTPResponse) -> str:
    """Return a strong entity tag or a date, which identifies the edition of a file; or ""."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _total_bytes(response: http.client.HTTPResponse, start: int) -> int | None:
    """Return the size of the complete file.

    None means that the size is not known, or that a partial response does not begin at `start`.
    """
    if response.status != PARTIAL_CONTENT:
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None
    content_range = response.headers.get("Content-Range", "").removeprefix("bytes ")
    bounds, _, total = content_range.partition("/")
    first, _, _ = bounds.partition("-")
    return int(total) if first == str(start) and total.isdecimal() else None


@contextmanager
def _progress(name: str, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar with size and speed on a terminal, or print a line."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        size = "" if total is None else f" of {total:,} bytes"
        start = f" after byte {done:,}" if done else ""
        print(f"downloading {name}{size}{start}", file=sys.stderr)
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda received: bar.update(task, advance=received)
