"""Translated documents, kept in memory for some minutes until their clients fetch them."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass

from transduce.serving.refusals import Busy


@dataclass(frozen=True)
class _File:
    """A translated document that waits for its client."""

    data: bytes
    until: float  # seconds of the monotonic clock


class FileStore:
    """Documents under names that nobody can guess."""

    def __init__(self, most_bytes: int = 200_000_000, seconds: float = 600) -> None:
        self.most_bytes = most_bytes
        self.seconds = seconds
        self._files: dict[str, _File] = {}
        self._lock = threading.Lock()

    def add(self, data: bytes, suffix: str) -> str:
        """Keep a document, and return its name."""
        with self._lock:
            self._forget_old()
            size = sum(len(file.data) for file in self._files.values())
            if size + len(data) > self.most_bytes:
                raise Busy("the server has too many translated files; try again later", 60)
            name = f"{secrets.token_urlsafe(24)}{suffix}"
            self._files[name] = _File(data, time.monotonic() + self.seconds)
            return name

    def get(self, name: str) -> bytes | None:
        """Return a document; None if there is none of this name, or no more."""
        with self._lock:
            self._forget_old()
            return self._files[name].data if name in self._files else None

    def _forget_old(self) -> None:
        now = time.monotonic()
        self._files = {name: file for name, file in self._files.items() if file.until > now}
