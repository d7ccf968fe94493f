"""Text as rows of a store. In byte-pair encoding no piece crosses a space: a corpus takes one segmentation a word."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from transduce.data.store import token_type
from transduce.data.tokenizer import EOS, Tokenizer

_KNOWN = 1 << 20  # words in memory, about


class RowEncoder:
    """Token ids as the bytes that a store holds, text by text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.dtype = np.dtype(token_type(tokenizer.vocab_size))

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text, ending with `EOS`."""
        return list(map(self._bytes, self._tokenizer.encode_batch(texts)))

    def sample(self, texts: Sequence[str], rate: float, seed: int) -> list[bytes]:
        """Likewise, in a segmentation drawn at random."""
        return list(map(self._bytes, self._tokenizer.encode_batch(texts, sampling=rate, seed=seed)))

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return np.array(ids, self.dtype).tobytes()


class WordEncoder(RowEncoder):
    """The same for byte-pair encoding, several times faster, since it remembers the words it has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._known: dict[str, bytes] = {}
        self._vanishing = {""}  # words of which normalisation leaves nothing; only the space in front of them stays
        self._space = self._bytes(tokenizer.encode("  ")[:1])
        self._eos = self._bytes([EOS])

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text, ending with `EOS`."""
        if len(self._known) > _KNOWN:
            self._known.clear()
        split = [text.split(" ") for text in texts]
        self._learn(set(itertools.chain.from_iterable(split)).difference(self._known))
        known = self._known.__getitem__
        return [
            self._eos if len(words) == 1 and words[0] in self._vanishing else b"".join(map(known, words)) + self._eos
            for words in split
        ]

    def _learn(self, words: Iterable[str]) -> None:
        words = list(words)
        for word, ids in zip(words, self._tokenizer.encode_batch(words), strict=True):
            if ids == [EOS]:
                self._vanishing.add(word)
            self._known[word] = self._bytes(ids[:-1]) or self._space
