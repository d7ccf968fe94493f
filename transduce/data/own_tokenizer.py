"""A tokenizer of the user's own, by protocol: `size`, `encode` and `decode`.

Its ids are moved up by two, since 0 and 1 are the end and the unknown here, and padding comes last.
Its code is in no file: a store or bundle that was made with it names it, and needs it handed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from transduce.data.tokenizer import EOS, OWN, UNKNOWN, Tokenizer, is_own
from transduce.errors import ConfigError, DataError, HookError, InputError

FIRST = UNKNOWN + 1  # the id of the own tokenizer's 0


class TokenizerLike(Protocol):
    """What is asked of a tokenizer."""

    size: int  # ids are 0 to size - 1

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text, without marks of beginning or end."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""


class OwnTokenizer(Tokenizer):
    """A `TokenizerLike` with the ids and methods of `Tokenizer`."""

    def __init__(self, own: TokenizerLike) -> None:
        missing = [name for name in ("size", "encode", "decode") if not hasattr(own, name)]
        if missing or type(own.size) is not int or own.size < 1:
            found = f"has no {missing[0]}" if missing else f"has size {own.size!r}"
            raise ConfigError(
                f"the tokenizer {type(own).__name__} {found}; expected size (how many ids), encode(text) -> ids and "
                "decode(ids) -> text"
            )
        self.own, self.size = own, own.size
        self._model = json.dumps({OWN: type(own).__qualname__, "size": own.size}).encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnTokenizer, (self.own,)

    @property
    def vocab_size(self) -> int:
        """With the end, the unknown and padding."""
        return self.size + 3

    def normalize(self, text: str) -> str:
        """The text itself."""
        return text

    def encode_batch(
        self, texts: Sequence[str], *, sampling: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """Token ids of many texts; there is nothing to sample."""
        if sampling:
            raise ConfigError(
                f"data.tokenizer.sampling is {sampling}, which your own tokenizer has not; set it to 0"
            )
        return [self._encode(text) for text in texts]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The texts of many sequences of token ids."""
        return [
            self._call("decode", [int(token) - FIRST for token in ids if self._is_own(token)])
            for ids in batch
        ]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id is as text."""
        return [
            self._call("decode", [int(token) - FIRST]) if self._is_own(token) else ""
            for token in ids
        ]

    def _is_own(self, token: int) -> bool:
        return FIRST <= token < FIRST + self.size

    def _encode(self, text: str) -> list[int]:
        ids = [int(token) for token in self._call("encode", text)]
        if ids and not 0 <= min(ids) <= max(ids) < self.size:
            name = type(self.own).__name__
            raise InputError(
                f"{name}.encode gave ids from {min(ids)} to {max(ids)}; expected 0 to {self.size - 1}"
            )
        return [*(token + FIRST for token in ids), EOS]

    def _call(self, method: str, argument: Any) -> Any:
        try:
            return getattr(self.own, method)(argument)
        except Exception as error:
            name = f"{type(self.own).__name__}.{method}"
            raise HookError(f"tokenizer {name} raised {type(error).__name__}: {error}") from error


OwnTokenizers = TokenizerLike | tuple[TokenizerLike, TokenizerLike] | None


def as_tokenizer(given: Tokenizer | TokenizerLike) -> Tokenizer:
    """A tokenizer of ours as it is, another one with our ids."""
    return given if isinstance(given, Tokenizer) else OwnTokenizer(given)


def by_side(own: OwnTokenizers) -> dict[str, Tokenizer]:
    """Tokenizers by side; the target's alone if both languages share it."""
    if own is None:
        return {}
    if isinstance(own, tuple):
        return {"source": as_tokenizer(own[0]), "target": as_tokenizer(own[1])}
    return {"target": as_tokenizer(own)}


def pair_of(files: Mapping[str, bytes], own: OwnTokenizers = None) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target for a bundle's files; one's own must be those that it was made with."""
    if own is None:
        return Tokenizer.pair(files)
    given = by_side(own)
    source, target = given.get("source", given["target"]), given["target"]
    names = (
        ("tokenizer.model",) * 2 if "tokenizer.model" in files else ("source.model", "target.model")
    )
    for tokenizer, name in zip((source, target), names, strict=True):
        if tokenizer.to_bytes() != files[name]:
            told = (
                files[name].decode(errors="replace")[:80]
                if is_own(files[name])
                else "SentencePiece"
            )
            raise DataError(
                f"the model was trained with another tokenizer ({told}); hand in that one, or none"
            )
    return source, target
