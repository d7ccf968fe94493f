"""Places for things that need much memory: how many of them may exist at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable
from typing import Literal

from transduce.serving.refusals import Busy
from transduce.serving.settings import ServerSettings

Kind = Literal["document", "upload"]


class Places:
    """Counts the places that are taken, and by whom."""

    def __init__(self, settings: ServerSettings) -> None:
        self._most: dict[Kind, int] = {
            "document": settings.max_documents,
            "upload": settings.max_uploads,
        }
        self._taken: Counter[tuple[Hashable, Kind]] = Counter()
        self._lock = threading.Lock()

    def take(self, holder: Hashable, kind: Kind) -> None:
        """Take a place, or raise `Busy`."""
        with self._lock:
            taken = sum(count for (_, other), count in self._taken.items() if other == kind)
            if taken >= self._most[kind]:
                raise Busy(f"the server has too many {kind}s at the moment; try again later", 5)
            self._taken[holder, kind] += 1

    def give_back(self, holder: Hashable, kind: Kind) -> None:
        """Give one place back."""
        with self._lock:
            self._taken[holder, kind] -= 1

    def forget(self, holder: Hashable) -> None:
        """Give back all places of a holder that no longer exists."""
        with self._lock:
            for kind in self._most:
                del self._taken[holder, kind]
