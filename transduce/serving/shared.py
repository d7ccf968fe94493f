"""What requests share, whichever process answers them: rates of callers, and translated files."""

from __future__ import annotations

from transduce.serving.file_store import FileStore
from transduce.serving.guards.rates import Rates
from transduce.serving.settings import ServerSettings


class Shared:
    """The things that are shared, in this process. `RemoteShared` reaches those of another one."""

    def __init__(self, settings: ServerSettings) -> None:
        self._rates = Rates(settings.requests_per_minute)
        self._files = FileStore()

    def count_request(self, caller: bytes) -> None:
        """Count a request of a caller, or raise `TooManyRequests`."""
        self._rates.take(caller)

    def add_file(self, data: bytes, suffix: str) -> str:
        """Keep a translated document for its client, and return its name."""
        return self._files.add(data, suffix)

    def get_file(self, name: str) -> bytes | None:
        """Return a translated document; None if there is none of this name."""
        return self._files.get(name)
