"""Explain in one line why BLEU stays at 0 or the loss diverges, and what to do about it."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from transduce.config import Recipe
from transduce.training.optimizer import peak_rate

Texts = Sequence[str]
USEFUL_BLEU = 1.0  # a lower score is an accident
MANY = 0.5  # the share of translations that explains a score of 0
UNKNOWN = ("\u2047", "<unk>")  # how SentencePiece and others write an unknown piece
# Japanese mixes three scripts.
ONE_SCRIPT = dict.fromkeys(("HIRAGANA", "KATAKANA", "CJK"), "Han or kana")


def diagnose(sources: Texts, references: Texts, hypotheses: Texts, bleu: float) -> str | None:
    """Return why BLEU is about 0, judging by the translations.

    None if BLEU is higher, or nothing was translated.
    """
    if bleu >= USEFUL_BLEU or not hypotheses:
        return None
    for find in (_empty, _unknown, _copies, _all_the_same, _loops, _wrong_language):
        reason = find(sources, references, hypotheses)
        if reason:
            return f"BLEU is {bleu:.1f} because {reason}"
    return (
        f"BLEU is {bleu:.1f}: the translations have no sequence of words in common with the "
        "references yet, like those of an untrained model; train longer, at least past "
        "training.warmup_steps"
    )


def divergence_advice(recipe: Recipe, *, bf16: bool) -> str:
    """Return what to try when gradients are not finite, except what the recipe does already."""
    training = recipe.training

    # Lower the learning rate: to the paper's, or to a half.
    peak = peak_rate(recipe)
    paper_peak = (recipe.model.d_model * training.warmup_steps) ** -0.5
    if peak > 2 * paper_peak:
        rate = f"{paper_peak:.2g} (the paper's; now {peak:.2g})"
    else:
        rate = f"{peak / 2:.2g} (now {peak:.2g})"

    # Add the settings that make training more stable, unless the recipe has them.
    settings = [
        f"training.learning_rate={rate}",
        f"training.warmup_steps={2 * training.warmup_steps}",
    ]
    if training.clip_norm == 0:
        settings.append("training.clip_norm=1.0")
    if recipe.model.norm_order == "post":
        settings.append("model.norm_order=pre")
    if bf16:
        settings.append("training.precision=float32")
    return (
        "start a new run, from the best weights of this one if you want (transduce train "
        "--start-from), and try "
        f"{', or '.join(settings)}"
    )


def _empty(_: Texts, __: Texts, hypotheses: Texts) -> str | None:
    # Repeated blanks are a loop, not an empty text.
    share = _share(not text.strip() and not _is_loop(text) for text in hypotheses)
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the translations are empty: the model ends every sentence at once; "
        "look for empty target lines with transduce doctor, and train longer"
    )


def _unknown(_: Texts, __: Texts, hypotheses: Texts) -> str | None:
    share = _share(map(_is_unknown, _words(hypotheses)))
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the words are unknown: the tokenizer does not fit this text; prepare "
        "again with a larger data.tokenizer.vocab_size, or with data.tokenizer.kind=bpe and "
        "data.tokenizer.byte_fallback=true"
    )


def _copies(sources: Texts, references: Texts, hypotheses: Texts) -> str | None:
    share = _share(
        hypothesis.split() == source.split() != reference.split()
        for source, reference, hypothesis in zip(sources, references, hypotheses, strict=True)
    )
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the translations copy the source: the corpus contains untranslated pairs, "
        "or the same file on both sides; count them with transduce doctor"
    )


def _all_the_same(_: Texts, references: Texts, hypotheses: Texts) -> str | None:
    share = _most_frequent_share(hypotheses)
    expected = _most_frequent_share(references)
    if len(hypotheses) == 1 or share < MANY or expected >= MANY:
        return None
    return (
        f"{share:.0%} of the translations are identical: the model ignores the source so far, or "
        "the two sides are not aligned; train longer, then run transduce doctor"
    )


def _loops(_: Texts, __: Texts, hypotheses: Texts) -> str | None:
    # Words, or characters in languages without spaces.
    units = [text.split() if " " in text.strip() else list(text) for text in hypotheses]
    share = _share(map(_is_loop, units))
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the translations repeat themselves, which is usual early in training; if "
        "it lasts past the warm-up, halve training.learning_rate, or check the data with "
        "transduce doctor"
    )


def _wrong_language(sources: Texts, references: Texts, hypotheses: Texts) -> str | None:
    """Return a reason if the script or the words are not those of the references."""
    expected_script = _script(references)
    script = _script(hypotheses)

    # Words that occur on one side only tell the languages apart.
    source_words = set(_words(sources, lower=True))
    reference_words = set(_words(references, lower=True))
    source_only = source_words - reference_words
    reference_only = reference_words - source_words
    words = _words(hypotheses, lower=True)
    like_sources = _share(word in source_only for word in words)
    like_references = _share(word in reference_only for word in words)

    if script and expected_script and script != expected_script:
        finding = f"are written in {script} letters and the references in {expected_script}"
    elif like_sources > max(0.3, 2 * like_references):
        finding = "use the words of the source language"
    else:
        return None
    return (
        f"the translations {finding}: check that data.source_language, data.target_language and "
        "the files of training and validation are not swapped"
    )


def _words(texts: Texts, *, lower: bool = False) -> list[str]:
    words: list[str] = []
    for text in texts:
        words += text.lower().split() if lower else text.split()
    return words


def _is_unknown(word: str) -> bool:
    return any(sign in word for sign in UNKNOWN)


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / max(len(values), 1)


def _most_frequent_share(texts: Texts) -> float:
    return max(Counter(texts).values()) / len(texts)


def _is_loop(units: Sequence[str]) -> bool:
    """Return whether at most a third of a long text's words, or word pairs, are distinct."""
    pairs = set(pairwise(units))
    return len(units) >= 8 and min(len(set(units)), len(pairs)) <= len(units) / 3


def _script(texts: Texts) -> str | None:
    """Return the script of most letters: the first word of their Unicode names."""
    scripts: Counter[str] = Counter()
    for text in texts:
        for letter in text[:200]:
            if letter.isalpha():
                name = unicodedata.name(letter, "?").split()[0]
                scripts[ONE_SCRIPT.get(name, name)] += 1
    if not scripts:
        return None
    return max(scripts, key=scripts.__getitem__).capitalize()
