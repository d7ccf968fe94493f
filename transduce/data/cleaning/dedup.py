"""When two sentences are the same: by their letters and digits alone, as 64-bit hashes, millions in little memory."""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]

_ASCII_REST = bytes(code for code in range(128) if not chr(code).isalnum())
_OTHER_REST = re.compile(r"[^\x00-\x7f\w]")


def key(text: str) -> bytes:
    """Letters and digits only, case, accents' encoding and width ignored: `»Grüße!«` is `GRÜSSE`."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    folded = text.casefold().encode("utf-8", "surrogatepass").translate(None, _ASCII_REST)
    if folded.isascii():
        return folded
    return _OTHER_REST.sub(_mark, folded.decode("utf-8", "surrogatepass")).encode(
        "utf-8", "surrogatepass"
    )


def _mark(character: re.Match[str]) -> str:
    """Vowel signs of Indic scripts belong to their letter, and bytes that could not be decoded may be letters."""
    category = unicodedata.category(character[0])
    return character[0] if category[0] == "M" or category == "Cs" else ""


def digest(data: bytes) -> bytes:
    """A hash of 64 bits, the same in every process."""
    return blake2b(data, digest_size=8).digest()


def as_hashes(digests: list[bytes]) -> Hashes:
    """Digests as an array of numbers."""
    return np.frombuffer(b"".join(digests), dtype="<u8")


class HashSet:
    """A growing set of hashes in sorted runs: 8 bytes for each, where a Python set takes 70."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def contains(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Which of the hashes are in the set."""
        found = np.zeros(len(hashes), dtype=bool)
        for run in self._runs:
            place = np.searchsorted(run, hashes)
            found |= run[np.minimum(place, len(run) - 1)] == hashes
        return found

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Put the hashes in, and say which of them were there before, be it earlier in the same array."""
        new, where = np.unique(hashes, return_index=True)
        seen = self.contains(hashes)
        fresh = ~seen[where]
        again = np.ones(len(hashes), dtype=bool)
        again[where] = False
        if fresh.any():
            self._runs.append(new[fresh])
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            # Stable: merges sorted runs.
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]), kind="stable")]
        return seen | again
