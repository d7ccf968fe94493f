"""Translations of different quality, made from references."""

import random

from transduce.corpora.phrases import phrases


def parallel_texts(sentences=60):
    """Sources and references."""
    pairs = phrases("en", "de", 400)["train"][:sentences]
    return [source for source, _ in pairs], [target for _, target in pairs]


def damaged(references, share, seed=1):
    """The references, without some of their words."""
    chance = random.Random(seed)
    texts = []
    for reference in references:
        words = [word for word in reference.split() if chance.random() >= share]
        texts.append(" ".join(words))
    return texts
