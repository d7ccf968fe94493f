"""The doctor's verdict: what kind of text a corpus is, whether it can be used, and what to do.

It judges a sample of the pairs that are kept. Too few pairs are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.data.cleaning import langid, rules
from transduce.data.suggestions import measure_text, suggest_preset, suggest_vocabulary
from transduce.errors import MissingExtra

_LEAST = 20  # pairs; fewer are not judged
_GUESSED_FROM = 300  # sentences, from which the language of a side is guessed
_TOKENIZED_SHARE = 0.5  # of the sentences, from which on a side counts as tokenized
_LOWER_CASED_SHARE = 0.9  # of the sentences, from which on a side counts as lower-cased
# Shares of the pairs in a wrong language: the first is worth a warning, the second confirms that
# the whole text is. It is low because short sentences are not judged.
_WARNING_SHARE = 0.05
_WRONG_SHARE = 0.2
# A space before a full stop or a comma, or the escapes of the Moses tokenizer.
_TOKENIZED = re.compile(r"\w (?:[.,](?: |$)|@-@|&apos;)")
_PUNCTUATED = re.compile(r"[.,]")


@dataclass(frozen=True)
class SideOfText:
    """What one side of a corpus looks like, judging by a sample."""

    language: str = ""  # the guess; empty if languages cannot be identified here
    median_words: int = 0
    long_words: int = 0  # 95 % of the sentences have at most as many words
    tokenized: bool = False
    lower_cased: bool = False


@dataclass(frozen=True)
class Verdict:
    """Whether a corpus can be used, in one line, and what was found out about its text."""

    usable: bool = True
    text: str = ""
    sides: tuple[SideOfText, ...] = ()
    preset: str = ""
    vocab_size: int = 0
    problems: tuple[str, ...] = ()


def judge(
    pairs: Sequence[tuple[str, str]],
    languages: tuple[str, str],
    kept: int,
    total: int,
    wrong_share: float,
) -> Verdict:
    """Return the verdict on a corpus.

    Args:
        pairs: A sample of the kept pairs.
        languages: The expected languages.
        kept: The number of pairs that are kept.
        total: The number of all pairs.
        wrong_share: The share of the sample that is in a wrong language.
    """
    if not kept:
        return Verdict(usable=False, text="not usable: no pair is left")
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    sides = (_look(sources, languages[0]), _look(targets, languages[1]))
    statistics = measure_text([*sources, *targets], kept)
    suggestion = (suggest_preset(kept), suggest_vocabulary(statistics))
    if len(pairs) < _LEAST:
        text = f"too little text to judge: {kept:,} pairs"
        return Verdict(True, text, sides, *suggestion)

    # A wrong file: nothing that is learned from it would be right.
    named = tuple(zip(("source", "target"), sides, languages, strict=True))
    if wrong_share >= _WRONG_SHARE:
        for name, side, expected in named:
            if side.language and not langid.is_alike(side.language, expected):
                text = (
                    f"not usable: the {name} text looks like {side.language!r}, not {expected!r} "
                    f"({wrong_share:.1%} of the pairs are in a wrong language); use the right "
                    f"file, or pass --{name}-language {side.language}"
                )
                return Verdict(False, text, sides, *suggestion)

    problems = []
    if wrong_share >= _WARNING_SHARE:
        problems.append(
            f"{wrong_share:.1%} of the pairs are in a wrong language (drop them with "
            "data.clean.drop=wrong-language data.clean.language_sample=0)"
        )
    for name, side, _ in named:
        kinds = [("tokenized", side.tokenized), ("lower-cased", side.lower_cased)]
        found = " and ".join(kind for kind, applies in kinds if applies)
        if found:
            problems.append(
                f"the {name} text is {found}, and a model learns to translate only such text (use "
                "the original text if there is one)"
            )
    if kept < total / 2:
        problems.append(f"only {kept / total:.0%} of the pairs are kept (see the table)")
    if problems:
        text = f"usable, but {'; '.join(problems)}"
    else:
        text = f"good: {kept:,} of {total:,} pairs can be used"
    return Verdict(True, text, sides, *suggestion, tuple(problems))


def _look(texts: Sequence[str], language: str) -> SideOfText:
    """Return what one side looks like."""
    if not texts:
        return SideOfText()
    count_words = rules.word_counter(language)
    lengths = sorted(count_words(text) for text in texts)
    return SideOfText(
        language=_guess(texts),
        median_words=lengths[len(lengths) // 2],
        long_words=lengths[min(len(lengths) * 95 // 100, len(lengths) - 1)],
        tokenized=_is_tokenized(texts),
        lower_cased=_is_lower_cased(texts),
    )


def _guess(texts: Sequence[str]) -> str:
    try:
        return langid.identify("\n".join(texts[:_GUESSED_FROM]))
    except MissingExtra:
        return ""


def _is_tokenized(texts: Sequence[str]) -> bool:
    """Return whether most sentences with a full stop or a comma have a space before one."""
    punctuated = [text for text in texts if _PUNCTUATED.search(text)]
    tokenized = [text for text in punctuated if _TOKENIZED.search(text)]
    return len(punctuated) >= _LEAST and len(tokenized) >= _TOKENIZED_SHARE * len(punctuated)


def _is_lower_cased(texts: Sequence[str]) -> bool:
    """Return whether almost no sentence has a capital, in a script that has capitals."""
    cased = [text for text in texts if text.upper() != text.lower()]
    lower = [text for text in cased if text == text.lower()]
    return len(cased) >= _LEAST and len(lower) >= _LOWER_CASED_SHARE * len(cased)
