"""Convert text to token ids and back: byte-pair encoding (§5.1), unigram, or whole words.

The ids are the ones that other runtimes expect: end of sentence 0, unknown 1, padding the last. A
tokenizer is a standard SentencePiece model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import sentencepiece

from transduce.config import TokenizerConfig
from transduce.data.tokenizer_training import refuse_surrogates, train_model
from transduce.errors import DataError, InputError

EOS = 0
UNKNOWN = 1
OWN = "own_tokenizer"  # the key that marks the file of a user's own tokenizer

SPACE_MARK = "\u2581"  # how SentencePiece writes a space inside a piece
_FEW_TEXTS = 32  # for so few, starting a thread costs more than it saves


class Tokenizer:
    """A trained SentencePiece model. Every sequence of ids ends with `EOS`."""

    def __init__(self, model: bytes) -> None:
        """Load a model from the bytes of its file."""
        if is_own(model):
            name = model.decode(errors="replace")[:80]
            raise DataError(
                f"the tokenizer is your own code ({name}), which is not saved; "
                "pass it from Python: tokenizer=..."
            )
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError) as error:
            raise DataError(
                f"a tokenizer file of {len(model):,} bytes is not a SentencePiece model: {error}"
            ) from None
        self._model = model
        found = (self._processor.eos_id(), self._processor.unk_id(), self._processor.pad_id())
        expected = (EOS, UNKNOWN, self.pad)
        if found != expected:
            raise DataError(
                f"the tokenizer has the ids {found} for eos, unk and pad; expected {expected}: "
                "train it with transduce"
            )

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
        """Learn a vocabulary from texts. The same texts and settings give the same bytes."""
        return cls(train_model(texts, config, eos=EOS, unknown=UNKNOWN))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Load a tokenizer from a file."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path} cannot be read as a tokenizer: {error.strerror}") from None

    @classmethod
    def pair(cls, files: Mapping[str, bytes]) -> tuple[Tokenizer, Tokenizer]:
        """Return the source and target tokenizers of a bundle; one object if they share a file."""
        if "tokenizer.model" in files:
            shared = cls(files["tokenizer.model"])
            return shared, shared
        return cls(files["source.model"]), cls(files["target.model"])

    def to_bytes(self) -> bytes:
        """Return the SentencePiece model, as any SentencePiece library reads it."""
        return self._model

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self._model,)

    @property
    def vocab_size(self) -> int:
        """The number of ids, including padding."""
        return int(self._processor.vocab_size())

    @property
    def pad(self) -> int:
        """The id of padding, which is the last."""
        return self.vocab_size - 1

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the model; tokenizers with the same one give the same ids."""
        return hashlib.sha256(self._model).hexdigest()

    def normalize(self, text: str) -> str:
        """Return what `decode(encode(text))` gives: the text, unless punctuation is normalized."""
        substitute = self._substitute(text)
        normalized: str = self._processor.normalize(text.replace(SPACE_MARK, substitute))
        normalized = normalized.removeprefix(SPACE_MARK)
        return normalized.replace(SPACE_MARK, " ").replace(substitute, SPACE_MARK)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, ending with `EOS`."""
        return self.encode_batch([text])[0]

    def encode_batch(
        self, texts: Sequence[str], *, sampling: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """Return the token ids of many texts, each ending with `EOS`.

        Args:
            texts: The texts; any Unicode except unpaired surrogates.
            sampling: The rate of BPE-dropout, or the smoothing of unigram sampling; 0 gives the
                best segmentation.
            seed: The seed of the sampling. The same texts, rate and seed give the same result.
        """
        # SentencePiece would take U+2581 in a text for a space: encode another character instead.
        texts = list(texts)
        substitutes = {}
        for index, text in enumerate(texts):
            if SPACE_MARK in text:
                substitutes[index] = self._substitute(text)
                texts[index] = text.replace(SPACE_MARK, substitutes[index])
        try:
            ids = self._sample(texts, sampling, seed) if sampling else self._best(texts)
        except (RuntimeError, TypeError, UnicodeEncodeError):
            refuse_surrogates(texts)
            raise
        for index, substitute in substitutes.items():
            ids[index] = self._replace(ids[index], substitute, SPACE_MARK)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without the end of sentence and padding."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of many sequences of token ids."""
        for ids in batch:
            if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
                raise InputError(
                    f"token ids run from {min(ids)} to {max(ids)}; "
                    f"expected 0 to {self.vocab_size - 1}"
                )
        return [self._processor.decode(list(map(int, ids))) for ids in batch]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each id as text, where U+2581 is a space."""
        pieces: list[str] = self._processor.id_to_piece(list(map(int, ids)))
        return pieces

    def _best(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) <= _FEW_TEXTS:
            return [self._processor.encode(text, out_type=int, add_eos=True) for text in texts]
        ids: list[list[int]] = self._processor.encode(
            texts, out_type=int, add_eos=True, num_threads=1
        )
        return ids

    def _sample(self, texts: Sequence[str], rate: float, seed: int) -> list[list[int]]:
        # The seed is for the one thread that the next call starts.
        sentencepiece.set_random_generator_seed(seed)
        ids: list[list[int]] = self._processor.encode(
            texts,
            out_type=int,
            add_eos=True,
            num_threads=1,
            enable_sampling=True,
            alpha=rate,
            nbest_size=-1,
        )
        return ids

    def _substitute(self, text: str) -> str:
        """Return a character that is neither in the text nor in the vocabulary.

        SentencePiece encodes it as bytes.
        """
        for code in range(0x10FFFF, 0x10000, -1):
            character = chr(code)
            if character not in text and self._processor.piece_to_id(character) == UNKNOWN:
                return character
        raise AssertionError("no text has all characters")

    def _replace(self, ids: list[int], old: str, new: str) -> list[int]:
        """Replace the ids of one character's bytes by those of another's."""
        if self._processor.piece_to_id("<0x00>") == UNKNOWN:
            return ids  # no byte fallback: both characters are unknown
        # A string with a character for each id has a fast `replace`.
        replaced = "".join(map(chr, ids)).replace(self._byte_ids(old), self._byte_ids(new))
        return [ord(character) for character in replaced]

    def _byte_ids(self, character: str) -> str:
        """Return the ids of a character's bytes, as a string with a character for each id."""
        ids = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode()]
        return "".join(map(chr, ids))


def is_own(model: bytes) -> bool:
    """Return whether a tokenizer file is only the name of a user's own tokenizer."""
    return model.startswith(f'{{"{OWN}"'.encode())
