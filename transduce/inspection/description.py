"""Tokens, words, candidates and hypotheses of a translation as a reader sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from transduce.data.tokenizer import EOS, SPACE_MARK, Tokenizer
from transduce.inspection.replay import Node, Search
from transduce.inspection.result import Beam, Candidate, Ending, Side, Step, Token
from transduce.translation.alignment import (
    alignment_layer,
    join_links,
    most_attended,
    words_of_tokens,
)
from transduce.translation.reading import SourceSentence
from transduce.translation.tag_tree import words
from transduce.translation.translator import Translator

CANDIDATES = 10  # shown at each step


def describe_sides(
    translator: Translator, shown: SourceSentence, found: Search, translation: str
) -> tuple[Side, Side]:
    """Return the words and tokens of a sentence and of its translation."""
    reader, writer = translator.tokenizers
    ids = [*found.hypothesis.ids, EOS]
    source = _side(reader, shown.ids, reader.normalize(shown.read), shown.read)
    target = _side(writer, ids, translation, translation)
    tokens = [
        replace(token, probability=probability)
        for token, probability in zip(
            target.tokens, found.hypothesis.token_confidences, strict=True
        )
    ]
    return source, replace(target, tokens=tuple(tokens))


def _side(tokenizer: Tokenizer, ids: Sequence[int], text: str, shown: str) -> Side:
    ranges = words_of_tokens(tokenizer, ids, text, shown)
    pieces = tokenizer.pieces(ids)
    tokens = []
    for token, piece, found in zip(ids, pieces, ranges, strict=True):
        word = found.start if len(found) else None
        tokens.append(Token(token, token_text(token, piece), piece, word))
    return Side(tuple(shown[start:end] for start, end in words(shown)), tuple(tokens))


def token_text(token: int, piece: str) -> str:
    """Return a token as a reader sees it: without the mark of a space before it."""
    if token == EOS:
        return "</s>"
    return piece.replace(SPACE_MARK, " ").strip() or piece


def find_links(
    translator: Translator,
    shown: SourceSentence,
    found: Search,
    translation: str,
    cross: list[Tensor],
) -> tuple[tuple[int, int], ...]:
    """Return the word alignment, from the attention that was recorded."""
    weights = cross[alignment_layer(len(cross))].mean(1)[0]  # (T, S)
    return join_links(
        translator.tokenizers,
        shown.read,
        translation,
        found.hypothesis.ids,
        most_attended(weights),
    )


def describe_steps(found: Search, nodes: list[Node], tokenizer: Tokenizer) -> tuple[Step, ...]:
    """Return the distribution before each token of the translation, as the search saw it."""
    steps = []
    for node in nodes:
        if not node.best or node.id is None:
            continue
        log_probs = found.log_probs[node.step - 1][node.row]  # (V,)
        top = log_probs.topk(min(CANDIDATES, log_probs.size(0) - 1))
        texts = _texts(tokenizer, top.indices.tolist())
        candidates = map(Candidate, top.indices.tolist(), texts, top.values.exp().tolist())
        probabilities = log_probs.exp()
        entropy = -(probabilities * log_probs.clamp(min=-1e4)).sum()
        steps.append(Step(tuple(candidates), float(entropy), node.id))
    return tuple(steps)


def describe_beam(found: Search, nodes: list[Node], tokenizer: Tokenizer) -> Beam:
    """Return the tree of the search and the hypotheses that ended, the best first."""
    texts = ["", *_texts(tokenizer, [node.id or 0 for node in nodes[1:]])]
    endings = []
    for index, node in enumerate(nodes):
        if node.score is not None:
            text = tokenizer.decode(_path(nodes, index)[:-1])
            endings.append(Ending(index, text, node.score))
    endings.sort(key=lambda ending: ending.score, reverse=True)
    return Beam(found.config.width, tuple(nodes), tuple(texts), tuple(endings))


def _path(nodes: list[Node], index: int) -> list[int]:
    """Return the tokens from the start to a node."""
    tokens: list[int] = []
    node = nodes[index]
    while node.parent is not None and node.id is not None:
        tokens.append(node.id)
        node = nodes[node.parent]
    return tokens[::-1]


def _texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return list(map(token_text, ids, tokenizer.pieces(ids)))
