"""Request a file over HTTP. An error says whether the same request may succeed later."""

from __future__ import annotations

import email.utils
import http.client
import time
import urllib.error
import urllib.request
from typing import IO, Any
from urllib.parse import urlsplit

from transduce.corpora.connections import PunctualHTTP, PunctualHTTPS
from transduce.errors import DataError

RANGE_NOT_SATISFIABLE = 416
TEMPORARY_ERRORS = (408, RANGE_NOT_SATISFIABLE, 425, 429)  # and all from 500 on


class TryAgain(Exception):
    """A try failed, but the next one may succeed."""

    def __init__(
        self, reason: object, *, wait: float | None = None, from_the_start: bool = False
    ) -> None:
        super().__init__(" ".join(str(reason).split()) or type(reason).__name__)
        self.wait = wait  # as the server asks for
        self.from_the_start = from_the_start


def send(address: str, headers: dict[str, str], timeout: float) -> http.client.HTTPResponse:
    """Send a request and return the response."""
    refuse_unless_http(address)
    request = urllib.request.Request(address, headers=headers)
    try:
        opener = urllib.request.build_opener(_SafeRedirects, PunctualHTTP, PunctualHTTPS)
        response: http.client.HTTPResponse = opener.open(request, timeout=timeout)
        return response
    except urllib.error.HTTPError as error:
        with error:
            reason = f"answered {error.code} {' '.join(str(error.reason).split())}"
            if error.code not in TEMPORARY_ERRORS and error.code < 500:
                raise DataError(
                    f"{address} {reason}; it may have moved: download it by other means and pass "
                    "its folder as --mirror"
                ) from None
            raise TryAgain(
                f"it {reason}",
                wait=_retry_after(error),
                from_the_start=error.code == RANGE_NOT_SATISFIABLE,
            ) from None
    except urllib.error.URLError as error:
        raise TryAgain(error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise TryAgain(error) from None


def _retry_after(error: urllib.error.HTTPError) -> float | None:
    """Return how many seconds the server asks to wait; it may give a date (RFC 9110 §10.2.3)."""
    value = error.headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTP addresses only, and never from HTTPS to HTTP."""

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
            refuse_unless_http(newurl, after=req.full_url)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def refuse_unless_http(address: str, after: str = "") -> None:
    """Raise an error for an address of another scheme; `after` is the address that led there."""
    schemes = ("https",) if urlsplit(after).scheme == "https" else ("http", "https")
    if urlsplit(address).scheme not in schemes:
        origin = f" (where {after} leads)" if after else ""
        raise DataError(
            f"{address}{origin} has an unsupported scheme; expected {' or '.join(schemes)}"
        )
