"""Use any object with `size`, `encode` and `decode` as the tokenizer.

Its ids are increased by two, since 0 and 1 are the end of a sentence and the unknown token here,
and padding comes last. Its code is not saved: a store or bundle made with it records only its name,
and the user must pass the same tokenizer again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from transduce.data.tokenizer import EOS, OWN, UNKNOWN, Tokenizer, is_own
from transduce.errors import ConfigError, DataError, HookError, InputError

FIRST = UNKNOWN + 1  # id 0 of the user's tokenizer


class TokenizerLike(Protocol):
    """The interface that a user's tokenizer must have."""

    size: int  # ids are 0 to size - 1

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text, without ids for its beginning or end."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""


class OwnTokenizer(Tokenizer):
    """Gives a `TokenizerLike` the ids and methods of `Tokenizer`."""

    def __init__(self, own: TokenizerLike) -> None:
        """Check that the object has the interface, and wrap it."""
        missing = [name for name in ("size", "encode", "decode") if not hasattr(own, name)]
        if missing or type(own.size) is not int or own.size < 1:
            found = f"has no {missing[0]}" if missing else f"has size {own.size!r}"
            raise ConfigError(
                f"the tokenizer {type(own).__name__} {found}; expected size (the number of ids), "
                "encode(text) -> ids and decode(ids) -> text"
            )
        self.own = own
        self.size = own.size
        self._model = json.dumps({OWN: type(own).__qualname__, "size": own.size}).encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnTokenizer, (self.own,)

    @property
    def vocab_size(self) -> int:
        """The number of ids, with those for the end, the unknown token and padding."""
        return self.size + 3

    def normalize(self, text: str) -> str:
        """Return the text unchanged."""
        return text

    def encode_batch(
        self, texts: Sequence[str], *, sampling: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """Return the token ids of many texts; sampling is an error."""
        if sampling:
            raise ConfigError(
                f"data.tokenizer.sampling is {sampling}, but your own tokenizer cannot sample; "
                "set it to 0"
            )
        return [self._encode(text) for text in texts]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of many sequences of token ids."""
        texts = []
        for ids in batch:
            own_ids = [int(token) - FIRST for token in ids if self._is_own(token)]
            texts.append(self._call("decode", own_ids))
        return texts

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each id as text."""
        pieces = []
        for token in ids:
            own = self._is_own(token)
            pieces.append(self._call("decode", [int(token) - FIRST]) if own else "")
        return pieces

    def _is_own(self, token: int) -> bool:
        return FIRST <= token < FIRST + self.size

    def _encode(self, text: str) -> list[int]:
        ids = [int(token) for token in self._call("encode", text)]
        if ids and not 0 <= min(ids) <= max(ids) < self.size:
            name = type(self.own).__name__
            raise InputError(
                f"{name}.encode returned ids from {min(ids)} to {max(ids)}; "
                f"expected 0 to {self.size - 1}"
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
    """Return a `Tokenizer` unchanged, and any other tokenizer wrapped as one."""
    return given if isinstance(given, Tokenizer) else OwnTokenizer(given)


def by_side(own: OwnTokenizers) -> dict[str, Tokenizer]:
    """Return the user's tokenizers by side; only "target" if both sides share one."""
    if own is None:
        return {}
    if isinstance(own, tuple):
        return {"source": as_tokenizer(own[0]), "target": as_tokenizer(own[1])}
    return {"target": as_tokenizer(own)}


def pair_of(
    files: Mapping[str, bytes], own: TokenizerLike | tuple[TokenizerLike, TokenizerLike]
) -> tuple[Tokenizer, Tokenizer]:
    """Return the user's source and target tokenizers for a bundle.

    Args:
        files: The tokenizer files of the bundle.
        own: The user's tokenizers, which must be those that the model was trained with.
    """
    given = by_side(own)
    source = given.get("source", given["target"])
    target = given["target"]
    names = ("source.model", "target.model")
    if "tokenizer.model" in files:
        names = ("tokenizer.model", "tokenizer.model")
    for tokenizer, name in zip((source, target), names, strict=True):
        expected = files[name]
        if tokenizer.to_bytes() != expected:
            kind = expected.decode(errors="replace")[:80] if is_own(expected) else "SentencePiece"
            raise DataError(
                f"the model was trained with another tokenizer ({kind}); pass that one, or none"
            )
    return source, target
