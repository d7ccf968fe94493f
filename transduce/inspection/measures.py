"""Measures of attention heads: how far they look, how sharply, and at which words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transduce.inspection.heads import Kind
from transduce.inspection.result import Array, HeadMeasures, Side

Words = Sequence[int | None]  # the word of each position


def measure(
    attention: dict[Kind, Array], source: Side, target: Side, links: Sequence[tuple[int, int]]
) -> tuple[HeadMeasures, ...]:
    """Return the measures of all heads; `links` are the aligned (source, target) words."""
    # The word of each position, on each side.
    source_words: Words = [token.word for token in source.tokens]
    target_words: Words = [token.word for token in target.tokens]
    # The decoder reads its input: the start, then all target tokens but the last.
    input_words: Words = [None, *target_words[:-1]]

    # The positions of special keys: the start, the end, and punctuation.
    starts = np.arange(len(target_words)) == 0
    ends = np.arange(len(source_words)) == len(source_words) - 1
    source_marks = _punctuation(source)
    target_marks = np.concatenate([[False], _punctuation(target)[:-1]])
    aligned = _aligned_words(target_words, links)

    # Of each kind: the words that belong to a query, the words of the keys, and special keys.
    sides: dict[Kind, tuple[list[set[int]], Words, NDArray[np.bool_], NDArray[np.bool_]]] = {
        "encoder": (_own_words(source_words), source_words, source_marks, ends),
        "decoder": (_own_words(input_words), input_words, target_marks, starts),
        "cross": (aligned, source_words, source_marks, ends),
    }
    measures = []
    for kind, weights in attention.items():
        own, keys, marks, special = sides[kind]
        shares = {offset: _share(weights, _near(own, keys, offset)) for offset in (-1, 0, 1)}
        entropy = _entropy(weights)
        distance = _distance(weights)
        at_marks = weights[..., marks].sum(-1).mean(-1)
        at_end = weights[..., special].sum(-1).mean(-1)
        for layer, index in np.ndindex(weights.shape[:2]):
            place = (layer, index)
            measures.append(
                HeadMeasures(
                    head=f"{kind}.{layer + 1}.{index + 1}",
                    kind=kind,
                    layer=layer + 1,
                    index=index + 1,
                    distance=float(distance[place]),
                    entropy=float(entropy[place]),
                    previous=float(shares[-1][place]),
                    next=float(shares[1][place]),
                    same=float(shares[0][place]),
                    punctuation=float(at_marks[place]),
                    end=float(at_end[place]),
                    aligned=float(shares[0][place]) if kind == "cross" else None,
                )
            )
    return tuple(measures)


def _own_words(words: Words) -> list[set[int]]:
    return [set() if word is None else {word} for word in words]


def _aligned_words(target: Words, links: Sequence[tuple[int, int]]) -> list[set[int]]:
    """Return the source words that are aligned with the word of each target token."""
    sources: dict[int | None, set[int]] = {}
    for source, word in links:
        sources.setdefault(word, set()).add(source)
    return [sources.get(word, set()) for word in target]


def _near(own: list[set[int]], keys: Words, offset: int) -> NDArray[np.bool_]:
    """Return (Q, K) whether a key is part of a word that is `offset` words from the query's."""
    near = np.zeros((len(own), len(keys)), dtype=bool)
    for query, words in enumerate(own):
        shifted = {word + offset for word in words} - (words if offset else set())
        for key, word in enumerate(keys):
            near[query, key] = word in shifted
    return near


def _share(weights: Array, chosen: NDArray[np.bool_]) -> Array:
    """Return the mean weight on chosen keys (Q, K), over queries that could have any: (N, h)."""
    queries = chosen.any(-1)
    if not queries.any():
        return np.zeros(weights.shape[:2], dtype=np.float32)
    return (weights * chosen).sum(-1)[..., queries].mean(-1)


def _entropy(weights: Array) -> Array:
    """Return the mean entropy of the rows in nats:  (N, h, Q, K) -> (N, h)."""
    logs = np.log(np.maximum(weights, 1e-30))
    return -(weights * logs).sum(-1).mean(-1)


def _distance(weights: Array) -> Array:
    """Return the mean of |query - key| in tokens:  (N, h, Q, K) -> (N, h)."""
    queries = np.arange(weights.shape[-2])[:, None]
    keys = np.arange(weights.shape[-1])
    return (weights * np.abs(queries - keys)).sum(-1).mean(-1)


def _punctuation(side: Side) -> NDArray[np.bool_]:
    """Return which tokens are punctuation: part of a word without a letter or digit."""
    marks = []
    for token in side.tokens:
        word = "" if token.word is None else side.words[token.word]
        marks.append(bool(word) and not any(map(str.isalnum, word)))
    return np.array(marks, dtype=bool)
