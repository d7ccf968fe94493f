"""Learn the vocabulary of a tokenizer: a SentencePiece model, as bytes.

Its normalization of punctuation is part of the model, so that every program that loads the file
does the same.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import io
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from transduce.config import TokenizerConfig
from transduce.errors import ConfigError, DataError, InputError

# Unigram training adds up in an order that depends on this: it must not depend on the machine.
_TRAINER_THREADS = 4

# Plain characters, and the typographic characters that they replace.
_PLAIN = {
    "'": "‘’‚‛´ʼ‹›＇",
    '"': "“”„‟«»＂",
    "-": "‐‑‒–—―−",
    "...": "…",
    " ": (
        "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
    ),
    "": "\u00ad\u200b\ufeff",
}


def train_model(texts: Iterable[str], config: TokenizerConfig, *, eos: int, unknown: int) -> bytes:
    """Learn a vocabulary from texts, with these ids for the end of sentence and the unknown."""
    texts = [text for text in texts if text]
    refuse_surrogates(texts)
    if not texts:
        raise DataError(
            "there is no text to learn a tokenizer from; expected at least one sentence"
        )
    ids = {"eos_id": eos, "unk_id": unknown, "pad_id": config.vocab_size - 1}
    try:
        return _learn(texts, config, ids)
    except RuntimeError as error:
        raise _explain(error, texts, config, ids) from None


def _learn(texts: Sequence[str], config: TokenizerConfig, ids: dict[str, Any]) -> bytes:
    """Train a SentencePiece model that preserves spaces, control and rare characters."""
    model = io.BytesIO()
    # SentencePiece leaves out longer lines, in bytes. Each word of them must be in the vocabulary.
    longest = 2**30 if config.kind == "word" else 4_192
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
            byte_fallback=config.byte_fallback and config.kind != "word",
            split_digits=config.split_digits,
            max_sentence_length=longest,
            bos_id=-1,  # a target starts from padding, not from a piece
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            num_threads=_TRAINER_THREADS,
            minloglevel=2,
            **ids,
            **rules,
        )
    # The model holds the name of the temporary file. Concatenated protocol buffers are merged: the
    # appended one sets that name to the empty string.
    nameless = model.getvalue() + b"\x1a\x02\x32\x00"
    return bytes(
        sentencepiece.SentencePieceProcessor(model_proto=nameless).serialized_model_proto()
    )


def _punctuation_rules() -> str:
    """Return SentencePiece's table of replacements: plain punctuation, and Unicode NFC."""
    plain: dict[int, str] = {}
    for replacement, characters in _PLAIN.items():
        plain |= {ord(character): replacement for character in characters}

    # Every spelling of a composed character becomes its NFC form.
    rules: dict[str, str] = {}
    for code in range(0xA0, 0x30000):
        canonical = unicodedata.decomposition(chr(code))
        if canonical and not canonical.startswith("<"):
            composed = unicodedata.normalize("NFC", chr(code))
            spellings = {chr(code), unicodedata.normalize("NFD", chr(code))}
            spellings.add("".join(chr(int(part, 16)) for part in canonical.split()))
            rules |= {spelling: composed.translate(plain) for spelling in spellings - {composed}}
    rules |= {chr(code): replacement for code, replacement in plain.items()}
    return "".join(f"{_codes(old)}\t{_codes(new)}\n" for old, new in rules.items())


def _codes(text: str) -> str:
    """Return the hexadecimal code points of a text."""
    return " ".join(f"{ord(character):X}" for character in text)


def _explain(
    error: RuntimeError, texts: Sequence[str], config: TokenizerConfig, ids: dict[str, Any]
) -> ConfigError | RuntimeError:
    """Return what a failed training means for the vocabulary size, which usually causes it."""
    setting = f"data.tokenizer.vocab_size is {config.vocab_size:,}"
    needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if needed:
        return ConfigError(
            f"{setting}, but the characters of this corpus alone need {int(needed[1]):,}; "
            "raise it, or lower data.tokenizer.character_coverage"
        )
    # SentencePiece names the largest possible size only if there is no padding id beyond it.
    try:
        _learn(texts, config, ids | {"pad_id": -1})
    except RuntimeError as advice:
        largest = re.search(r"a value <= (\d+)", str(advice))
        if largest:
            return ConfigError(
                f"{setting}, but this corpus supports at most {int(largest[1]) + 1:,}; lower it"
            )
    return error


def refuse_surrogates(texts: Sequence[str]) -> None:
    """Check that texts are Unicode, which unpaired surrogates are not."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = f"U+{ord(text[error.start]):04X}"
            raise InputError(
                f"character {error.start + 1} of the text is the unpaired surrogate {code}, which "
                "is not Unicode text; decode the input as UTF-8"
            ) from None
