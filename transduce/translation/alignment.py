"""Word alignment of a translation with its source, from the decoder's cross-attention (§3.2.3)."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.data.tokenizer import EOS, SPACE_MARK, Tokenizer
from transduce.model import Transformer
from transduce.translation.tag_tree import words

Links = tuple[tuple[int, int], ...]  # (word of the source, word of the translation)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@torch.inference_mode()
def token_links(model: Transformer, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """Return for each target id the position of the source token to which it attends most.

    Both sequences end with the end of the sentence.
    """
    seen: list[Tensor] = []

    def record(attention: Any, inputs: tuple[Any, ...]) -> None:
        seen.append(attention.weights(*inputs[:3]).mean(1)[0])  # (T, S)

    device = model.target_embedding.weight.device
    layer: Any = model.decoder[alignment_layer(len(model.decoder))]
    handle = layer.cross_attention.register_forward_pre_hook(record)
    try:
        shifted = torch.tensor([[model.config.pad, *target[:-1]]], device=device)
        model(torch.tensor([source], device=device), shifted)
    finally:
        handle.remove()
    return most_attended(seen[0])


def alignment_layer(layers: int) -> int:
    """Return the index of the decoder layer whose cross-attention aligns words best.

    The heads of the second-to-last layer look at what is being translated; those of the last layer
    look ahead. Of two layers, the first one still looks at the word before, so it is the last.
    """
    return layers - 2 if layers > 2 else layers - 1


def most_attended(weights: Tensor) -> list[int]:
    """Return the source position with the largest weight of each target token:  (T, S) -> T."""
    # Heads that have nothing to do look at the end of the source: leave it out.
    weights = weights[:, :-1] if weights.size(1) > 1 else weights
    best: list[int] = weights.argmax(-1).tolist()
    return best


def word_links(
    model: Transformer,
    tokenizers: tuple[Tokenizer, Tokenizer],
    source: str,
    translation: str,
    ids: Sequence[int],
) -> Links:
    """Return the links between the words of a source and of its translation with these ids."""
    positions = token_links(model, tokenizers[0].encode(source), [*ids, EOS])
    return join_links(tokenizers, source, translation, ids, positions)


def join_links(
    tokenizers: tuple[Tokenizer, Tokenizer],
    source: str,
    translation: str,
    ids: Sequence[int],
    positions: Sequence[int],
) -> Links:
    """Return the links between words, from the source position of each token of the translation.

    A word that occurs once on both sides, such as a number, a punctuation mark or a name, is its
    own translation. Words in lower case are excepted, since they may be false friends.
    """
    reader, writer = tokenizers
    source_ids = reader.encode(source)
    source_words = words_of_tokens(reader, source_ids, reader.normalize(source), source)
    target_words = words_of_tokens(writer, ids, translation, translation)

    # A token may contain letters of several words, such as a number and the comma after it.
    links: set[tuple[int, int]] = set()
    for targets, position in zip(target_words, positions, strict=False):
        sources = source_words[position] if position < len(source_words) else range(0)
        if len(sources) == len(targets):
            links.update(zip(sources, targets, strict=True))
        else:
            links.update(itertools.product(sources, targets))

    # Words that are the same on both sides are linked to each other alone.
    in_source = _unique_words(source)
    in_target = _unique_words(translation)
    for word in in_source.keys() & in_target.keys():
        pair = (in_source[word], in_target[word])
        links = {link for link in links if link[0] != pair[0] and link[1] != pair[1]}
        links.add(pair)
    return tuple(sorted(links))


def _unique_words(text: str) -> dict[str, int]:
    """Return the position of each word that occurs once, except for those in lower case."""
    found = [text[start:end] for start, end in words(text)]
    times = Counter(found)
    return {
        word: position
        for position, word in enumerate(found)
        if times[word] == 1 and not word.islower()
    }


def words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int], text: str, shown: str) -> list[range]:
    """Return for each token the words of `text` of which it contains letters.

    A token of nothing but a space has none. `shown` is the text before normalization; if it has
    another number of words, no token has any.
    """
    spans = words(text)
    if len(spans) != len(words(shown)):
        return [range(0)] * len(ids)
    starts = [len(text[:start].encode()) for start, _ in spans]  # in bytes
    ends = [len(text[:end].encode()) for _, end in spans]

    # SentencePiece puts a space mark before the text, which is not a character of it.
    pieces = tokenizer.pieces(ids)
    offset = -1 if pieces and pieces[0].startswith(SPACE_MARK) else 0
    found = []
    for token, piece in zip(ids, pieces, strict=True):
        start = offset
        if token == EOS:
            size = 0
        elif _BYTE.fullmatch(piece):
            size = 1
        else:
            size = len(piece.replace(SPACE_MARK, " ").encode())
        offset = start + size
        found.append(range(bisect_right(ends, start), bisect_left(starts, offset)))
    return found
