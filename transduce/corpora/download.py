"""A file from an address or a mirror folder, whole or not at all: resumed, retried, and checked against the lock."""

from __future__ import annotations

import email.utils
import http.client
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from transduce.corpora.lockfile import LOCK, Lock
from transduce.data.text_folder import whole_file
from transduce.errors import DataError
from transduce.storage.disk import sync

CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to put up with a server, in seconds and bytes."""

    tries: int = 6  # in a row that bring the file no further
    headway: int = 1 << 20  # bytes that count as "further"
    timeout: float = 30.0  # without a byte, or with fewer than `trickle`
    trickle: int = 1 << 10
    back_off: float = 1.0  # doubled after every try
    longest_wait: float = 60.0  # also when a server asks for more


def fetch(
    address: str,
    name: str,
    folder: Path,
    lock: Lock,
    *,
    mirror: Path | None = None,
    patience: Patience | None = None,
) -> Path:
    """The path of the file called `name`: the mirror's, or the folder's, downloaded where it is not there yet."""
    path = (mirror or folder) / name
    if mirror is None and not path.exists():
        _download(address, path, lock.expected_bytes(name), patience or Patience())
    elif not path.exists():
        raise DataError(
            f"{path} does not exist; put there what {address} holds, or leave out --mirror"
        )
    lock.check(name, path, address)
    return path


class _TryAgain(Exception):
    """A try that failed in a way in which the next may not."""

    def __init__(
        self, reason: object, *, wait: float | None = None, from_the_start: bool = False
    ) -> None:
        super().__init__(" ".join(str(reason).split()) or type(reason).__name__)
        self.wait = wait
        self.from_the_start = from_the_start


def _download(address: str, path: Path, expected_bytes: int | None, patience: Patience) -> None:
    part = path.with_name(f"{path.name}.part")
    fruitless, furthest, wait = 0, 0, patience.back_off
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _go_on(address, part, expected_bytes, patience)
            part.replace(path)
            _note(part).unlink(missing_ok=True)
            return
        except _TryAgain as failure:
            if failure.from_the_start:
                part.unlink(missing_ok=True)
            size = part.stat().st_size if part.exists() else 0
            fruitless = 1 if size >= furthest + patience.headway else fruitless + 1
            furthest = max(size, furthest)
            if fruitless >= patience.tries:
                raise DataError(
                    f"{address} cannot be downloaded: {failure} ({fruitless} tries); run the same command later to go "
                    f"on, or fetch it by other means as {path.name} and pass its folder as --mirror"
                ) from None
            time.sleep(min(wait if failure.wait is None else failure.wait, patience.longest_wait))
            wait = patience.back_off * 2**fruitless
        except OSError as error:
            raise DataError(
                f"{part} cannot be written: {error.strerror or error}; make room, then run again"
            ) from None


def _go_on(address: str, part: Path, expected_bytes: int | None, patience: Patience) -> None:
    """One try: what is missing of the file is appended to `part`, unless the server has another file by now."""
    validator = (
        _note(part).read_text(encoding="utf-8") if _note(part).exists() and part.exists() else ""
    )
    start = part.stat().st_size if validator else 0
    headers = {"User-Agent": "transduce", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}
    with _open(address, headers, patience) as response:
        if response.status != 206 or _validator(response) not in ("", validator):
            start = 0
        total = _total(response, start)
        if response.status == 206 and total is None:
            raise _TryAgain("the server sent another part than was asked for", from_the_start=True)
        if expected_bytes is not None and total not in (None, expected_bytes):
            raise DataError(
                f"{address} has {total:,} bytes now, but {LOCK} expects {expected_bytes:,}; it was changed: pass "
                "--accept-changes to use the new edition"
            )
        _receive(response, part, start, total, patience)


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    start: int,
    total: int | None,
    patience: Patience,
) -> None:
    if total is not None and total - start > shutil.disk_usage(part.parent).free:
        raise DataError(
            f"{part.parent} has no room for {total - start:,} bytes of {part.stem}; make room, then run again"
        )
    if not start:
        # Before the new tag: an old part under it would be taken for the new file's.
        part.unlink(missing_ok=True)
    with whole_file(_note(part)) as note:
        note.write(_validator(response).encode())
    received, recent, since = start, 0, time.monotonic()
    with part.open("ab") as file, _progress(part.stem, start, total) as advance:
        for chunk in _chunks(response):
            file.write(chunk)
            received, recent = received + len(chunk), recent + len(chunk)
            advance(len(chunk))
            if time.monotonic() - since > patience.timeout:
                if recent < patience.trickle:
                    raise _TryAgain(f"{recent} bytes in {patience.timeout:.0f} seconds")
                recent, since = 0, time.monotonic()
        sync(file)
    if total is not None and received != total:
        raise _TryAgain(f"the connection ended after {received:,} of {total:,} bytes")


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read1(CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise _TryAgain(error) from None


def _note(part: Path) -> Path:
    """Where the entity tag or date of a partial file is kept."""
    return part.with_name(f"{part.name}.tag")


def _validator(response: http.client.HTTPResponse) -> str:
    """What identifies this edition of the file (RFC 9110 §13.1.5: a strong entity tag or a date); empty: nothing."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _total(response: http.client.HTTPResponse, start: int) -> int | None:
    """The size of the whole file; None where it is not known, or where a partial answer starts elsewhere."""
    if response.status != 206:
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None
    first, _, total = (
        response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    )
    return int(total) if first.partition("-")[0] == str(start) and total.isdecimal() else None


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        try:
            _refuse_unless_http(newurl, after=req.full_url)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refuse_unless_http(address: str, after: str = "") -> None:
    schemes = ("https",) if urlsplit(after).scheme == "https" else ("http", "https")
    if urlsplit(address).scheme not in schemes:
        origin = f" (where {after} leads)" if after else ""
        raise DataError(
            f"{address}{origin} is not an address that is fetched; expected {' or '.join(schemes)}"
        )


def _open(address: str, headers: dict[str, str], patience: Patience) -> http.client.HTTPResponse:
    _refuse_unless_http(address)
    request = urllib.request.Request(address, headers=headers)
    try:
        opener = urllib.request.build_opener(_SafeRedirects)
        response: http.client.HTTPResponse = opener.open(request, timeout=patience.timeout)
        return response
    except urllib.error.HTTPError as error:
        with error:
            reason = f"answered {error.code} {' '.join(str(error.reason).split())}"
            if error.code not in (408, 416, 425, 429) and error.code < 500:
                raise DataError(
                    f"{address} {reason}; it may have moved: fetch it by other means and pass its folder as --mirror"
                ) from None
            raise _TryAgain(
                f"it {reason}", wait=_retry_after(error), from_the_start=error.code == 416
            ) from None
    except urllib.error.URLError as error:
        raise _TryAgain(error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _TryAgain(error) from None


def _retry_after(error: urllib.error.HTTPError) -> float | None:
    """How long the server asks to be left alone: seconds or a date (RFC 9110 §10.2.3)."""
    value = error.headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


@contextmanager
def _progress(name: str, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar with size and speed on a terminal, a plain line elsewhere."""
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
        print(f"downloading {name}{size}{f' after byte {done:,}' if done else ''}", file=sys.stderr)
        yield lambda _: None
        return
    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(TextColumn("{task.description}"), *columns, console=console) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda received: bar.update(task, advance=received)
