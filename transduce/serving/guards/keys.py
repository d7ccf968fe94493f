"""API keys: who may call."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request

from transduce.errors import ConfigError, InputError
from transduce.serving.refusals import RequestError

# How clients of DeepL and of other APIs name the key.
SCHEMES = ("bearer", "deepl-auth-key")


def read_keys(file: Path) -> frozenset[str]:
    """Return the keys of a file, one on each line; a line that starts with # is a comment."""
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"{file} cannot be read ({reason}); expected a file of API keys") from None
    keys = frozenset(line.strip() for line in lines if line.strip() and line.strip()[0] != "#")
    if not keys:
        raise ConfigError(f"{file} contains no key; expected one on each line")
    if not all(key.isascii() and key.isprintable() for key in keys):
        raise ConfigError(
            f"{file} has a key with a character that a header cannot have; expected ASCII"
        )
    return keys


class Gate:
    """Lets a request in if its key is known and its caller is not too fast."""

    def __init__(
        self, keys: frozenset[str], count_request: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Know the keys, and a function that counts a request of a caller or refuses it."""
        self._digests = [_digest(key) for key in keys]
        self._count_request = count_request

    @property
    def needs_key(self) -> bool:
        """Whether requests need a key."""
        return bool(self._digests)

    async def admit(
        self,
        request: Request,
        key: str | None = None,
        *,
        missing: int = 401,
        scheme: str = "Bearer",
    ) -> None:
        """Refuse a request without a valid key, or one too many.

        Args:
            request: The request, whose headers may have a key.
            key: A key from the body.
            missing: The status if there is no key.
            scheme: How clients of this API name the key in a header.
        """
        key = key_of(request) or key
        address = request.client.host.encode() if request.client else b""
        if self.needs_key:
            if not key:
                raise RequestError(
                    missing, f"the request has no API key; send it as: Authorization: {scheme} KEY"
                )
            # All keys are compared, each in constant time, so that time reveals nothing.
            digest = _digest(key)
            matches = [hmac.compare_digest(digest, known) for known in self._digests]
            if not any(matches):
                await self._count_request(address)  # who guesses keys is slowed down, too
                raise RequestError(403, "Invalid API key")
        await self._count_request(_digest(key) if self.needs_key and key else address)


def key_of(request: Request) -> str | None:
    """Return the key in the headers of a request."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() in SCHEMES else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()
