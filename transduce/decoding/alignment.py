"""Which words a translation's words come from: attention to the source (§3.2.3), read off a decoder layer."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.data.tokenizer import EOS, Tokenizer
from transduce.decoding.placement import words
from transduce.model import PADDING_SEGMENT, Tokens, Transformer, attention_weights

Links = tuple[tuple[int, int], ...]  # (word of the source, word of the translation)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@torch.inference_mode()
def token_links(model: Transformer, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """For each target id the place of the source token it attends to most; both end with the end of sentence.

    The last layer but one is read, whose heads look at what is being translated; the last looks ahead.
    """
    seen: list[Tensor] = []
    segments: list[Tensor] = []

    def record(_: Any, inputs: tuple[Any, ...]) -> None:
        q, keys_values, _ = inputs
        mask = (segments[0] != PADDING_SEGMENT)[:, None, None, :]
        seen.append(attention_weights(q, keys_values.k, mask).mean(1)[0])  # (T, S)

    device = model.target_embedding.weight.device
    source_tokens = Tokens.padded([source], 0).to(device)  # one row: nothing is padded
    segments.append(source_tokens.segments)
    layer = model.decoder[max(0, len(model.decoder) - 2)]
    handle = layer.cross_attention.register_forward_pre_hook(record)  # type: ignore[union-attr]
    try:
        model(source_tokens, Tokens.padded([target], 0).shifted_right(model.config.pad).to(device))
    finally:
        handle.remove()
    weights = seen[0][:, :-1] if len(source) > 1 else seen[0]  # the end of the source is where idle heads look
    best: list[int] = weights.argmax(-1).tolist()
    return best


def word_links(
    model: Transformer, tokenizers: tuple[Tokenizer, Tokenizer], source: str, translation: str, ids: Sequence[int]
) -> Links:
    """Links between the words of a source and of its translation, whose ids these are."""
    source_ids = tokenizers[0].encode(source)
    links = token_links(model, source_ids, [*ids, EOS])
    from_words = _words_of_tokens(tokenizers[0], source_ids, tokenizers[0].normalise(source), source)
    to_words = _words_of_tokens(tokenizers[1], ids, translation, translation)
    found = {
        (from_words[place], word)
        for word, place in zip(to_words, links, strict=False)
        if word is not None and place < len(from_words) and from_words[place] is not None
    }
    return tuple(sorted(found))  # type: ignore[arg-type]


def _words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int], text: str, shown: str) -> list[int | None]:
    """The word of `text` that each token's last letter stands in. None: a space, or a text that is shown otherwise."""
    starts = [len(text[:start].encode()) for start, _ in words(text)]
    if len(starts) != len(words(shown)):
        return [None] * len(ids)
    pieces = tokenizer.pieces(ids)
    place = -1 if pieces and pieces[0].startswith("\u2581") else 0  # a mark begins the text that stands for no space
    found: list[int | None] = []
    for token, piece in zip(ids, pieces, strict=True):
        byte = _BYTE.fullmatch(piece)
        place += 0 if token == EOS else 1 if byte else len(piece.replace("\u2581", " ").encode())
        word = bisect_right(starts, place - 1) - 1
        found.append(word if word >= 0 and token != EOS and piece != "\u2581" else None)
    return found
