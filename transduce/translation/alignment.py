"""Which words a translation's words come from: attention to the source (§3.2.3), read off a decoder layer."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.data.tokenizer import EOS, Tokenizer
from transduce.model import Transformer
from transduce.translation.tag_tree import words

Links = tuple[tuple[int, int], ...]  # (word of the source, word of the translation)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@torch.inference_mode()
def token_links(model: Transformer, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """For each target id the place of the source token it attends to most; both end with the end of sentence.

    The last layer but one is read, whose heads look at what is being translated; the last looks ahead.
    """
    seen: list[Tensor] = []

    def record(attention: Any, inputs: tuple[Any, ...]) -> None:
        seen.append(attention.weights(*inputs[:3]).mean(1)[0])  # (T, S)

    device = model.target_embedding.weight.device
    layer: Any = model.decoder[max(0, len(model.decoder) - 2)]
    handle = layer.cross_attention.register_forward_pre_hook(record)
    try:
        shifted = torch.tensor([[model.config.pad, *target[:-1]]], device=device)
        model(torch.tensor([source], device=device), shifted)
    finally:
        handle.remove()
    # The end of the source is where idle heads look.
    weights = seen[0][:, :-1] if len(source) > 1 else seen[0]
    best: list[int] = weights.argmax(-1).tolist()
    return best


def word_links(
    model: Transformer,
    tokenizers: tuple[Tokenizer, Tokenizer],
    source: str,
    translation: str,
    ids: Sequence[int],
) -> Links:
    """Links between the words of a source and of its translation, whose ids these are.

    What is the same on both sides, and once on each, is its own translation: a number, a mark, a name. Words in small
    letters may be false friends.
    """
    source_ids = tokenizers[0].encode(source)
    links = token_links(model, source_ids, [*ids, EOS])
    from_words = _words_of_tokens(
        tokenizers[0], source_ids, tokenizers[0].normalize(source), source
    )
    to_words = _words_of_tokens(tokenizers[1], ids, translation, translation)
    found = set()
    for targets, place in zip(to_words, links, strict=False):
        sources = from_words[place] if place < len(from_words) else range(0)
        # A token may hold letters of several words, such as a number and the mark after it.
        same = len(sources) == len(targets)
        found |= {
            *(zip(sources, targets, strict=True) if same else itertools.product(sources, targets))
        }
    here, there = _once(source), _once(translation)
    for pair in [(here[word], there[word]) for word in here.keys() & there.keys()]:
        found = {link for link in found if link[0] != pair[0] and link[1] != pair[1]} | {pair}
    return tuple(sorted(found))


def _once(text: str) -> dict[str, int]:
    """The place of each word that stands once in a text, but for those in small letters."""
    found = [text[start:end] for start, end in words(text)]
    times = Counter(found)
    return {
        word: place for place, word in enumerate(found) if times[word] == 1 and not word.islower()
    }


def _words_of_tokens(
    tokenizer: Tokenizer, ids: Sequence[int], text: str, shown: str
) -> list[range]:
    """The words of `text` that each token has letters of: none for a space, or if the text is shown otherwise."""
    found, spans = list[range](), words(text)
    if len(spans) != len(words(shown)):
        return [range(0)] * len(ids)
    starts, ends = ([len(text[: span[side]].encode()) for span in spans] for side in (0, 1))
    pieces = tokenizer.pieces(ids)
    # A mark begins the text that stands for no space.
    end = -1 if pieces and pieces[0].startswith("\u2581") else 0
    for token, piece in zip(ids, pieces, strict=True):
        start, byte = end, _BYTE.fullmatch(piece)
        end += 0 if token == EOS else 1 if byte else len(piece.replace("\u2581", " ").encode())
        found.append(range(bisect_right(ends, start), bisect_left(starts, end)))
    return found
