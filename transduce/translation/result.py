"""A translated text: what it says, how sure the model is of it, and what a reader should know."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Token:
    """One token of a translation and its probability given the ones before it."""

    text: str  # as the tokenizer writes it; U+2581 marks a space
    confidence: float


@dataclass(frozen=True)
class Alignment:
    """Which words a translation's words come from. A punctuation mark is a word; a tag is none."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    # (word of the source, word of the target), each counted from 0.
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sentence:
    """One sentence of a text (or a part of one that was too long) and its translation."""

    source: str
    text: str
    score: float  # log P / ((5 + length) / 6)^alpha, §6.1
    # The end of the sentence is the last; empty where confidences were not asked for.
    tokens: tuple[Token, ...]
    n_best: tuple[tuple[str, float], ...]  # texts and scores, best first
    alignment: Alignment | None = None  # where asked for

    @property
    def confidence(self) -> float:
        """The geometric mean of its tokens' probabilities."""
        logs = [math.log(max(token.confidence, 1e-30)) for token in self.tokens]
        return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


@dataclass(frozen=True, repr=False)
class Translation:
    """A translated text. What is not a sentence, such as blank lines, stands in `text` as it stood in the source."""

    text: str
    score: float  # the sum of its sentences' scores
    # Whole texts and scores, best first: of every sentence the nth best.
    n_best: tuple[tuple[str, float], ...]
    sentences: tuple[Sentence, ...] = ()
    # A sentence was too long and has been split, or a translation reached its limit.
    notices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """What it says, and what a reader should know; its parts have the rest."""
        notices = f", notices={list(self.notices)}" if self.notices else ""
        return f"Translation({self.text!r}, score={self.score:.4f}, {len(self.sentences)} sentences{notices})"

    def to_json(self) -> dict[str, Any]:
        """For a line of JSON: everything but what was not asked for, to four digits, which no batch size changes."""
        sentences = [
            {
                "source": sentence.source,
                "text": sentence.text,
                "score": round(sentence.score, 4),
                **_confidence(sentence),
                **({} if sentence.alignment is None else {"alignment": asdict(sentence.alignment)}),
            }
            for sentence in self.sentences
        ]
        n_best = [{"text": text, "score": round(score, 4)} for text, score in self.n_best]
        return {
            "text": self.text,
            "score": round(self.score, 4),
            "n_best": n_best,
            "sentences": sentences,
            "notices": [*self.notices],
        }


def _confidence(sentence: Sentence) -> dict[str, Any]:
    if not sentence.tokens:
        return {}
    tokens = [[token.text, round(token.confidence, 4)] for token in sentence.tokens]
    return {"confidence": round(sentence.confidence, 4), "tokens": tokens}
