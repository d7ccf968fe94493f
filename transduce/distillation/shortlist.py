"""Shortlists: the target tokens that a model needs, found by counting in its training text.

A vocabulary for two languages has many tokens that only one of them uses. A model never writes the
others, so the output projection need not compute their probabilities.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from transduce.data.readers.corpus import read_chunks
from transduce.data.tokenizer import SPACE_MARK, Tokenizer
from transduce.data.workers import progress
from transduce.errors import ConfigError, DataError
from transduce.recipe import load_recipe
from transduce.storage.bundle import Bundle

SHARE = 0.9999  # of all tokens in the text


def learn_shortlist(bundle: Bundle, recipe: str | Path, share: float = SHARE) -> bytes:
    """Return the shortlist of a bundle for the training text of a recipe, as a file's content.

    It has the most frequent tokens, up to this share of the target text, and every token that is
    needed to spell any other text.
    """
    data = load_recipe(str(recipe)).data
    if not data.corpora:
        raise ConfigError(f"{recipe} names no training text; expected [[data.corpora]]")
    if data.target_language != bundle.recipe.data.target_language:
        raise ConfigError(
            f"{recipe} has text in {data.target_language!r}, but the model writes "
            f"{bundle.recipe.data.target_language!r}; use text of the same language"
        )

    # Count the tokens of the target text.
    _, tokenizer = Tokenizer.pair(bundle.tokenizer_files)
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    languages = (data.source_language, data.target_language)
    with progress("counting tokens", None) as advance:
        for corpus in data.corpora:
            for chunk in read_chunks(corpus, *languages, Path(recipe).parent):
                ids = np.concatenate([[], *tokenizer.encode_batch(chunk.targets)]).astype(int)
                counts += np.bincount(ids, minlength=len(counts))
                advance(len(chunk))
    if not counts.any():
        raise DataError(f"the training text of {recipe} is empty; expected parallel text")

    # Keep the most frequent ones, and those of which any text can be made.
    ranking = np.argsort(-counts, kind="stable")
    missing = 1 - np.cumsum(counts[ranking]) / counts.sum()
    kept = {*ranking[: np.count_nonzero(missing > 1 - share) + 1].tolist()}
    pieces = tokenizer.pieces(range(tokenizer.pad))
    kept.update(token for token, piece in enumerate(pieces) if _can_spell(piece))
    return "".join(f"{pieces[token]}\n" for token in sorted(kept)).encode()


def _can_spell(piece: str) -> bool:
    """Return whether a token is a byte or a single character."""
    return piece.startswith("<0x") or len(piece.removeprefix(SPACE_MARK)) <= 1
