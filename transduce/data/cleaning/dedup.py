"""Find duplicates: compare sentences by their letters and digits, as 64-bit hashes."""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]

# What is neither a letter nor a digit, in ASCII and beyond.
_ASCII_REST = bytes(code for code in range(128) if not chr(code).isalnum())
_OTHER_REST = re.compile(r"[^\x00-\x7f\w]")


def key(text: str) -> bytes:
    """Return the letters and digits of a text as UTF-8, so that `»Grüße!«` equals `GRÜSSE`.

    Case, width and the encoding of accents do not matter.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    folded = text.casefold().encode("utf-8", "surrogatepass").translate(None, _ASCII_REST)
    if folded.isascii():
        return folded
    letters = _OTHER_REST.sub(_keep_marks, folded.decode("utf-8", "surrogatepass"))
    return letters.encode("utf-8", "surrogatepass")


def _keep_marks(match: re.Match[str]) -> str:
    """Return a character that may be part of a letter, or an empty string.

    Such are vowel signs of Indic scripts (M), and bytes that could not be decoded (Cs).
    """
    category = unicodedata.category(match[0])
    return match[0] if category[0] == "M" or category == "Cs" else ""


def digest(data: bytes) -> bytes:
    """Return a 64-bit hash, which is the same in every process."""
    return blake2b(data, digest_size=8).digest()


def as_hashes(digests: list[bytes]) -> Hashes:
    """Return digests as an array of numbers."""
    return np.frombuffer(b"".join(digests), dtype="<u8")


class HashSet:
    """A growing set of hashes in sorted arrays: 8 bytes for each, where a Python set takes 70."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def contains(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which of the hashes are in the set."""
        found = np.zeros(len(hashes), dtype=bool)
        for run in self._runs:
            place = np.searchsorted(run, hashes)
            found |= run[np.minimum(place, len(run) - 1)] == hashes
        return found

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Add hashes, and return which of them were in the set or earlier in the array."""
        in_set = self.contains(hashes)
        distinct, first_places = np.unique(hashes, return_index=True)
        repeated = np.ones(len(hashes), dtype=bool)
        repeated[first_places] = False

        new = distinct[~in_set[first_places]]
        if len(new):
            self._runs.append(new)

        # Merge the last runs until each is at least twice as long as the next one.
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate(self._runs[-2:])
            merged.sort(kind="stable")  # fast on two sorted runs
            self._runs[-2:] = [merged]
        return in_set | repeated
