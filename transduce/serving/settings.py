"""The settings of a server: limits on requests, keys, and what is logged."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from transduce.errors import ConfigError

# By the name of a setting: its smallest value, and what users call it.
_LEAST = {
    "requests_per_minute": (0, "--rate"),
    "max_characters": (1, "--max-characters"),
    "answer_seconds": (0.001, "--seconds"),
    "drain_seconds": (0, "--drain"),
    "max_connections": (1, "max_connections"),
    "max_requests": (1, "max_requests"),
}
MOST = 10**9  # of each of these; a system cannot wait for much longer
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^\s/?#]+")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """All that can be set besides the models. Times are in seconds, sizes in bytes."""

    runs: Path = Path("runs")  # the runs that the page shows
    api_keys: frozenset[str] = frozenset()  # if there are any, a request needs one of them
    requests_per_minute: int = 0  # of one key or address; 0: any number
    allowed_origins: tuple[str, ...] = ()  # of web pages that may call the API; "*": all
    max_body: int = 2_000_000
    max_upload: int = 20_000_000  # the body of a request with a document
    max_characters: int = 100_000  # of all texts of a request
    max_texts: int = 1_000  # of a request
    header_seconds: float = 8.0  # until the headers of a request must be there
    body_seconds: float = 25.0  # until the body must be there
    send_seconds: float = 30.0  # until a client must have read the next part of the answer
    answer_seconds: float = 120.0  # until a text must be translated
    max_connections: int = 1_000
    max_requests: int = 256  # that are worked on at the same time
    max_documents: int = 4  # that are translated at the same time; each may need much memory
    max_uploads: int = 8  # bodies beyond `max_body` that are read at the same time
    drain_seconds: float = 0.0  # between "not ready" and the end of accepting connections
    stop_seconds: float = 25.0  # until a stop gives up on requests that are worked on
    log_text: bool = False  # whether the access log has the texts

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        for name, (least, option) in _LEAST.items():
            value = getattr(self, name)
            if not least <= value <= MOST:
                raise ConfigError(
                    f"{option} is {value}; expected at least {least} and at most {MOST:,}"
                )
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"--cors is {origin!r}; expected an origin such as https://example.org, or *"
                )

    def divided(self, count: int) -> ServerSettings:
        """Return the settings of one of several processes, which share what is limited."""
        return replace(
            self,
            max_connections=math.ceil(self.max_connections / count),
            max_requests=math.ceil(self.max_requests / count),
        )
