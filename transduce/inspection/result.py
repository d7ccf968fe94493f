"""The result of an inspection: plain data, which JSON, a page and a notebook can show."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.inspection.heads import Kind
from transduce.inspection.replay import Node

VERSION = 1  # of the JSON
LEVELS = 65535  # a weight of 1 in the JSON
Array = NDArray[np.float32]


@dataclass(frozen=True)
class ModelFacts:
    """The model that was inspected."""

    name: str
    source_language: str | None
    target_language: str | None
    encoder_layers: int
    decoder_layers: int
    heads: int
    d_model: int


@dataclass(frozen=True)
class Token:
    """One token of a sentence; the last one is the end of the sentence."""

    id: int
    text: str  # as a reader sees it
    piece: str  # as the tokenizer writes it; U+2581 is a space
    word: int | None  # the word that it is part of
    probability: float | None = None  # of a target token, given those before it


@dataclass(frozen=True)
class Side:
    """The source or the target: words, as an alignment counts them, and tokens."""

    words: tuple[str, ...]
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Candidate:
    """A possible next token."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Step:
    """What the model expected before one token of the translation."""

    candidates: tuple[Candidate, ...]  # the most probable first
    entropy: float  # of the whole distribution, in nats
    chosen: int  # the token that the search took


@dataclass(frozen=True)
class Ending:
    """A hypothesis that ended in the search."""

    node: int
    text: str
    score: float


@dataclass(frozen=True)
class Beam:
    """The tree of the search. Node 0 is the start, `texts` has the token of each node."""

    size: int
    nodes: tuple[Node, ...]
    texts: tuple[str, ...]
    hypotheses: tuple[Ending, ...]  # the best first


@dataclass(frozen=True)
class HeadMeasures:
    """What one head attends to: means over the queries of the sentence."""

    head: str
    kind: Kind
    layer: int
    index: int
    distance: float  # mean of |query - key| in tokens
    entropy: float  # of the weights, in nats
    # Shares of the weight that go to the word before the query's own, to the next one and to
    # itself. In cross-attention the query's own word is the source word aligned with it.
    previous: float
    next: float
    same: float
    punctuation: float
    end: float  # the end of the sentence, or the start in decoder self-attention
    aligned: float | None  # only in cross-attention: the source words aligned with the query's


@dataclass(frozen=True, repr=False)
class Inspection:
    """One sentence and its translation, with what the model and the search did.

    `attention` has an array for each kind: encoder (N, h, S, S), decoder (M, h, T, T) and cross
    (M, h, T, S). Row t is the query that produced target token t. Column j of the decoder is its
    input j: 0 is the start, j > 0 is target token j - 1.
    """

    model: ModelFacts
    sentences: tuple[str, ...]  # all sentences of the text
    sentence: int  # the one that is shown
    text: str
    translation: str
    score: float
    notices: tuple[str, ...]
    without: tuple[str, ...]  # heads that were switched off
    full_translation: str | None  # with all heads, if some were switched off
    source: Side
    target: Side
    alignment: tuple[tuple[int, int], ...]  # (source word, target word)
    attention: dict[Kind, Array]
    # L2 norms after the embedding and after each layer: encoder (N + 1, S), decoder (M + 1, T).
    residual_norms: dict[str, Array]
    steps: tuple[Step, ...]
    beam: Beam
    measures: tuple[HeadMeasures, ...]

    def __repr__(self) -> str:
        return (
            f"Inspection({self.text!r} -> {self.translation!r}, "
            f"{len(self.measures)} heads, {len(self.source.tokens)} source and "
            f"{len(self.target.tokens)} target tokens)"
        )

    def _repr_html_(self) -> str:
        """Show the translation and its attention to the source in a notebook."""
        from transduce.inspection.figure import notebook_html

        return notebook_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; attention as base64 of 16-bit numbers."""
        norms = {
            side: np.round(array.astype(float), 4).tolist()
            for side, array in self.residual_norms.items()
        }
        return {
            "version": VERSION,
            "model": vars(self.model),
            "sentences": [*self.sentences],
            "sentence": self.sentence,
            "text": self.text,
            "translation": self.translation,
            "score": round(self.score, 4),
            "notices": [*self.notices],
            "without": [*self.without],
            "full_translation": self.full_translation,
            "source": _side_to_dict(self.source),
            "target": _side_to_dict(self.target),
            "alignment": [[*link] for link in self.alignment],
            "attention": {kind: encode(array) for kind, array in self.attention.items()},
            "residual_norms": norms,
            "steps": [_step_to_dict(step) for step in self.steps],
            "beam": _beam_to_dict(self.beam),
            "measures": [_rounded(vars(measures)) for measures in self.measures],
        }


def encode(weights: Array) -> dict[str, Any]:
    """Return weights between 0 and 1 as little-endian 16-bit numbers in base64, with their shape.

    A weight is the number divided by 65,535.
    """
    levels = np.rint(np.clip(weights, 0.0, 1.0) * LEVELS).astype("<u2")
    data = base64.b64encode(levels.tobytes()).decode("ascii")
    return {"shape": [*weights.shape], "data": data}


def _side_to_dict(side: Side) -> dict[str, Any]:
    tokens = []
    for token in side.tokens:
        entry = _rounded(vars(token))
        if token.probability is None:
            del entry["probability"]
        tokens.append(entry)
    return {"words": [*side.words], "tokens": tokens}


def _step_to_dict(step: Step) -> dict[str, Any]:
    candidates = [_rounded(vars(candidate)) for candidate in step.candidates]
    return {"candidates": candidates, "entropy": round(step.entropy, 4), "chosen": step.chosen}


def _beam_to_dict(beam: Beam) -> dict[str, Any]:
    nodes = []
    for node, text in zip(beam.nodes, beam.texts, strict=True):
        nodes.append(
            {
                "parent": node.parent,
                "id": node.id,
                "text": text,
                "step": node.step,
                "log_prob": round(node.log_prob, 4),
                "state": node.state,
                "best": node.best,
                "reason": node.reason,
            }
        )
    hypotheses = [_rounded(vars(ending)) for ending in beam.hypotheses]
    return {"size": beam.size, "nodes": nodes, "hypotheses": hypotheses}


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which floats have at most six digits after the point."""
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in values.items()
    }
