"""The result of a translation: the text, its scores and confidences, and notices for the reader."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Token:
    """One token of a translation and its probability given the ones before it."""

    # A piece of the tokenizer, a term of a glossary or a placeholder; U+2581 marks a space.
    text: str
    confidence: float


@dataclass(frozen=True)
class Alignment:
    """Links between words of source and translation. Punctuation marks are words, tags are not."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    # (index of the source word, index of the target word).
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sentence:
    """One sentence of a text, or a part of one that was too long, and its translation."""

    source: str
    text: str
    score: float  # log P / ((5 + length) / 6)^alpha, §6.1
    # The last one is the end of the sentence; empty unless confidences were requested.
    tokens: tuple[Token, ...]
    n_best: tuple[tuple[str, float], ...]  # texts and scores, best first
    alignment: Alignment | None = None  # None unless requested
    before: str = ""  # the layout of the translated text between the sentence before and this one

    @property
    def confidence(self) -> float:
        """The geometric mean of the tokens' probabilities."""
        logs = [math.log(max(token.confidence, 1e-30)) for token in self.tokens]
        return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


@dataclass(frozen=True, repr=False)
class Translation:
    """A translated text. Layout between its sentences, such as blank lines, is kept in `text`."""

    text: str
    score: float  # the sum of its sentences' scores
    # Complete texts and scores, best first; the nth consists of the nth best of every sentence.
    n_best: tuple[tuple[str, float], ...]
    sentences: tuple[Sentence, ...] = ()
    # Sentences that were too long and have been split, translations that reached their limit.
    notices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the text, the score, and any notices."""
        notices = f", notices={list(self.notices)}" if self.notices else ""
        return (
            f"Translation({self.text!r}, score={self.score:.4f}, "
            f"{len(self.sentences)} sentences{notices})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything that was requested as JSON values.

        Numbers are rounded to four digits, which do not depend on the batch size.
        """
        return {
            "text": self.text,
            "score": round(self.score, 4),
            "n_best": [{"text": text, "score": round(score, 4)} for text, score in self.n_best],
            "sentences": [_sentence_to_json(sentence) for sentence in self.sentences],
            "notices": [*self.notices],
        }


def _sentence_to_json(sentence: Sentence) -> dict[str, Any]:
    result: dict[str, Any] = {
        "source": sentence.source,
        "text": sentence.text,
        "score": round(sentence.score, 4),
    }
    if sentence.tokens:
        tokens = [[token.text, round(token.confidence, 4)] for token in sentence.tokens]
        result |= {"confidence": round(sentence.confidence, 4), "tokens": tokens}
    if sentence.alignment is not None:
        result["alignment"] = asdict(sentence.alignment)
    return result
