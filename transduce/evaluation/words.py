"""The words that scores count: between spaces, or characters in scripts without spaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Kana, and the scripts of Thai, Lao, Tibetan, Burmese and Khmer.
_OTHER = re.compile("[\u3040-\u30ff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]")
WITH_SPACES = "13a"
_MOSTLY = 0.5  # the share of the letters of a text
_SOME = 0.05  # the share of kana in Japanese is larger, that in Chinese smaller


def tokenization(texts: Iterable[str]) -> str:
    """Return the name of sacreBLEU's tokenization for a language, known by its references.

    It is "13a" where spaces are between words, "zh" for Chinese, and "char" for Japanese, Thai and
    other scripts without spaces. With "13a" a sentence of theirs would be a single word, and nearly
    every BLEU 0.
    """
    text = "".join(texts)
    letters = sum(map(str.isalpha, text))
    han = len(_HAN.findall(text))
    others = len(_OTHER.findall(text))
    if han + others <= _MOSTLY * letters:
        return WITH_SPACES
    return "zh" if others < _SOME * han else "char"


def word_counter(words: str) -> Callable[[str], int]:
    """Return a function that counts words as BLEU does with this tokenization."""
    from sacrebleu.metrics.bleu import BLEU

    tokenize = BLEU(tokenize=words).tokenizer
    return lambda text: len(tokenize(text.rstrip()).split())
