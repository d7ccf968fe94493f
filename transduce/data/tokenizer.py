"""Text to token ids and back: SentencePiece, byte-pair encoding as in §5.1 or unigram, without loss.

The ids are the ones that other runtimes expect: end of sentence 0, unknown 1, padding the last. A tokenizer is one
plain SentencePiece model; what it does to punctuation is written inside, so whoever loads the file does the same.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import sentencepiece

from transduce.config import TokenizerConfig
from transduce.errors import ConfigError, DataError, InputError

EOS, UNKNOWN = 0, 1
OWN = "own_tokenizer"  # how the file of a tokenizer begins whose code is the user's

_SPACE_MARK = "\u2581"  # how SentencePiece writes a space inside a piece
_FEW = 32  # texts at most for which starting a thread costs more than it saves
# Part of the result (unigram sums in this order), so the same on every machine.
_TRAINER_THREADS = 4

# Typographic characters and what a keyboard has for them.
_PLAIN = {
    "'": "‘’‚‛´ʼ‹›＇",
    '"': "“”„‟«»＂",
    "-": "‐‑‒–—―−",
    "...": "…",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "": "\u00ad\u200b\ufeff",
}


class Tokenizer:
    """A trained SentencePiece model. Every sequence of ids ends with `EOS`."""

    def __init__(self, model: bytes) -> None:
        if is_own(model):
            raise DataError(
                f"the tokenizer is one of your own ({model.decode(errors='replace')[:80]}); hand it in from Python: "
                "tokenizer=..."
            )
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError) as error:
            raise DataError(
                f"a tokenizer of {len(model):,} bytes is not a SentencePiece model: {error}"
            ) from None
        self._model = model
        found = (self._processor.eos_id(), self._processor.unk_id(), self._processor.pad_id())
        expected = (EOS, UNKNOWN, self.pad)
        if found != expected:
            raise DataError(
                f"the tokenizer has eos, unk and pad at {found}; expected {expected}: train it here"
            )

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
        """Learn a vocabulary. The same texts and settings give the same bytes."""
        texts = [text for text in texts if text]
        _refuse_surrogates(texts)
        if not texts:
            raise DataError(
                "there is no text to learn a tokenizer from; expected at least one sentence"
            )
        try:
            return cls(_learn(texts, config, pad=config.vocab_size - 1))
        except RuntimeError as error:
            raise _explained(error, texts, config) from None

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer in that file."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path} cannot be read as a tokenizer: {error.strerror}") from None

    @classmethod
    def pair(cls, files: Mapping[str, bytes]) -> tuple[Tokenizer, Tokenizer]:
        """Those of the source and of the target among a bundle's files; the same object if they share one."""
        if "tokenizer.model" in files:
            return (both := cls(files["tokenizer.model"])), both
        return cls(files["source.model"]), cls(files["target.model"])

    def to_bytes(self) -> bytes:
        """The SentencePiece model, as any SentencePiece library reads it."""
        return self._model

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self._model,)

    @property
    def vocab_size(self) -> int:
        """Every id is below it; padding counts."""
        return int(self._processor.vocab_size())

    @property
    def pad(self) -> int:
        """The id of padding: the last."""
        return self.vocab_size - 1

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model: two tokenizers with the same one give the same ids."""
        return hashlib.sha256(self._model).hexdigest()

    def normalize(self, text: str) -> str:
        """The text that `decode(encode(text))` gives back: itself, unless punctuation is normalized."""
        standing_in = text.replace(_SPACE_MARK, stand_in := self._stand_in(text))
        marked: str = self._processor.normalize(standing_in)
        return (
            marked.removeprefix(_SPACE_MARK)
            .replace(_SPACE_MARK, " ")
            .replace(stand_in, _SPACE_MARK)
        )

    def encode(self, text: str) -> list[int]:
        """Token ids, ending with `EOS`."""
        return self.encode_batch([text])[0]

    def encode_batch(
        self, texts: Sequence[str], *, sampling: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """Token ids of many texts.

        Args:
            texts: What to encode; any Unicode but unpaired surrogates.
            sampling: The rate of BPE-dropout, or the smoothing of unigram sampling; 0 gives the best segmentation.
            seed: Of the sampling. The result is a function of the texts, the rate and the seed.
        """
        found = {
            index: self._stand_in(text) for index, text in enumerate(texts) if _SPACE_MARK in text
        }
        texts = [
            text.replace(_SPACE_MARK, found[index]) if index in found else text
            for index, text in enumerate(texts)
        ]
        try:
            ids = self._sample(texts, sampling, seed) if sampling else self._best(texts)
        except (RuntimeError, TypeError, UnicodeEncodeError):
            _refuse_surrogates(texts)
            raise
        for index, stand_in in found.items():
            ids[index] = self._replace(ids[index], stand_in, _SPACE_MARK)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; marks of end and padding vanish."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The texts of many sequences of token ids."""
        for ids in batch:
            if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
                raise InputError(
                    f"token ids run from {min(ids)} to {max(ids)}; expected 0 to {self.vocab_size - 1}"
                )
        return [self._processor.decode(list(map(int, ids))) for ids in batch]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The written form of each id; U+2581 marks a space."""
        pieces: list[str] = self._processor.id_to_piece(list(map(int, ids)))
        return pieces

    def _best(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) <= _FEW:
            return [self._processor.encode(text, out_type=int, add_eos=True) for text in texts]
        ids: list[list[int]] = self._processor.encode(
            texts, out_type=int, add_eos=True, num_threads=1
        )
        return ids

    def _sample(self, texts: Sequence[str], rate: float, seed: int) -> list[list[int]]:
        sentencepiece.set_random_generator_seed(seed)  # of the one thread that the call starts
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

    def _stand_in(self, text: str) -> str:
        """A character that neither the text nor the vocabulary has: SentencePiece spells it in bytes."""
        candidates = map(chr, range(0x10FFFF, 0x10000, -1))
        return next(
            c for c in candidates if c not in text and self._processor.piece_to_id(c) == UNKNOWN
        )

    def _replace(self, ids: list[int], old: str, new: str) -> list[int]:
        """The ids with one character, spelled in bytes, for another: text in which U+2581 is not a space."""
        if self._processor.piece_to_id("<0x00>") == UNKNOWN:
            return ids  # no byte fallback: both are unknown
        return [ord(c) for c in "".join(map(chr, ids)).replace(self._spell(old), self._spell(new))]

    def _spell(self, character: str) -> str:
        """The ids of a character's bytes, each as the character of that number."""
        return "".join(
            chr(self._processor.piece_to_id(f"<0x{byte:02X}>")) for byte in character.encode()
        )


def is_own(model: bytes) -> bool:
    """Whether a tokenizer's file only names one of the user's own."""
    return model.startswith(f'{{"{OWN}"'.encode())


def _learn(texts: Sequence[str], config: TokenizerConfig, pad: int) -> bytes:
    """A SentencePiece model whose spaces, controls and rare characters survive."""
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules: dict[str, Any] = {}
        if config.normalize_punctuation:
            path = os.path.join(folder, "rules.tsv")
            Path(path).write_text(_punctuation_rules(), encoding="ascii")
            rules = {"normalization_rule_tsv": path}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            byte_fallback=config.byte_fallback,
            split_digits=config.split_digits,
            eos_id=EOS,
            unk_id=UNKNOWN,
            bos_id=-1,  # a target starts from the zero vector, not from a piece
            pad_id=pad,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            num_threads=_TRAINER_THREADS,
            minloglevel=2,
            **rules,
        )
    # Protocol buffers that follow one another merge: this one empties the temporary file's name.
    nameless = model.getvalue() + b"\x1a\x02\x32\x00"
    return bytes(
        sentencepiece.SentencePieceProcessor(model_proto=nameless).serialized_model_proto()
    )


def _punctuation_rules() -> str:
    """SentencePiece's table of replacements: plain punctuation and spaces, accents composed as in Unicode's NFC."""
    plain = {ord(character): to for to, characters in _PLAIN.items() for character in characters}
    rules: dict[str, str] = {}
    for code in range(0xA0, 0x30000):
        canonical = unicodedata.decomposition(chr(code))
        if canonical and not canonical.startswith("<"):
            composed = unicodedata.normalize("NFC", chr(code))
            spellings = {chr(code), unicodedata.normalize("NFD", chr(code))}
            spellings.add("".join(chr(int(part, 16)) for part in canonical.split()))
            rules |= {spelling: composed.translate(plain) for spelling in spellings - {composed}}
    rules |= {chr(code): to for code, to in plain.items()}
    return "".join(f"{_codes(old)}\t{_codes(new)}\n" for old, new in rules.items())


def _codes(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


def _explained(
    error: RuntimeError, texts: Sequence[str], config: TokenizerConfig
) -> ConfigError | RuntimeError:
    """What a refused training means for the one setting that can cause it."""
    setting = f"data.tokenizer.vocab_size is {config.vocab_size:,}"
    if needed := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        return ConfigError(
            f"{setting}, but the characters of this corpus alone need {int(needed[1]):,}; "
            "raise it, or lower data.tokenizer.character_coverage"
        )
    try:  # a padding id beyond the last piece hides SentencePiece's own advice
        _learn(texts, config, pad=-1)
    except RuntimeError as advice:
        if largest := re.search(r"a value <= (\d+)", str(advice)):
            return ConfigError(
                f"{setting}, but this corpus supports at most {int(largest[1]) + 1:,}; lower it"
            )
    return error


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = f"U+{ord(text[error.start]):04X}"
            raise InputError(
                f"character {error.start + 1} of the text is the unpaired surrogate {code}, which is not Unicode text; "
                "decode the input as UTF-8"
            ) from None
