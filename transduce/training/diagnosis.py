"""What is wrong when BLEU stays 0 or the loss diverges, and what to do about it, in one line each."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from transduce.config import Recipe, TrainingConfig
from transduce.training.schedule import peak_rate

Texts = Sequence[str]
USEFUL_BLEU = 1.0  # below this, a score is an accident
MANY = 0.5  # a share of translations that explains a score of 0
UNKNOWN = ("\u2047", "<unk>")  # how SentencePiece and others write a piece they do not know
ONE_SCRIPT = dict.fromkeys(("HIRAGANA", "KATAKANA", "CJK"), "Han or kana")  # Japanese mixes three


def diagnose(sources: Texts, references: Texts, hypotheses: Texts, bleu: float) -> str | None:
    """Why BLEU is about 0, from a look at the translations; None where it is not, or nothing was translated."""
    if bleu >= USEFUL_BLEU or not hypotheses:
        return None
    for find in (_empty, _unknown, _copies, _one_for_all, _loops, _wrong_language):
        if reason := find(sources, references, hypotheses):
            return f"BLEU is {bleu:.1f} because {reason}"
    return (
        f"BLEU is {bleu:.1f}: the translations share no run of words with the references yet, as those of an untrained "
        "model; train longer, at least past training.warmup_steps"
    )


def settings_advice(training: TrainingConfig) -> Iterator[str]:
    """What to know of settings that are at odds with each other."""
    if training.warmup_steps > training.steps:
        long = f"training.warmup_steps is {training.warmup_steps:,}, but training.steps {training.steps:,}"
        yield f"{long}: the learning rate never reaches its peak; lower warmup_steps"
    if training.ema and training.average_checkpoints > 1:
        yield (
            "training.ema is the average that becomes the model; checkpoints are not averaged as well: set "
            "training.average_checkpoints=1, or training.ema=0 to average them"
        )


def divergence_advice(recipe: Recipe, *, bf16: bool) -> str:
    """What to try when gradients are not finite; only what the recipe does not do already."""
    training = recipe.training
    peak, papers = peak_rate(recipe), (recipe.model.d_model * training.warmup_steps) ** -0.5
    lower = f"{papers:.2g} (the paper's; now" if peak > 2 * papers else f"{peak / 2:.2g} (now"
    tries = [f"training.learning_rate={lower} {peak:.2g})"]
    tries.append(f"training.warmup_steps={2 * training.warmup_steps}")
    if training.clip_norm == 0:
        tries.append("training.clip_norm=1.0")
    if recipe.model.norm_order == "post":
        tries.append("model.norm_order=pre")
    if bf16:
        tries.append("training.precision=float32")
    return f"in a new run, which --start-from may begin with this one's best weights, try {', or '.join(tries)}"


def _empty(_: Texts, __: Texts, hypotheses: Texts) -> str | None:
    # Blanks may be said again and again.
    share = _share(not text.strip() and not _is_loop(text) for text in hypotheses)
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the translations are empty: the model ends at once; "
        "look for empty target lines with transduce doctor, and train longer"
    )


def _unknown(_: Texts, __: Texts, hypotheses: Texts) -> str | None:
    share = _share(
        any(sign in word for sign in UNKNOWN) for text in hypotheses for word in text.split()
    )
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the words are unknown: the tokenizer was not made for this text; "
        "prepare again with data.tokenizer.byte_fallback=true or a larger data.tokenizer.vocab_size"
    )


def _copies(sources: Texts, references: Texts, hypotheses: Texts) -> str | None:
    share = _share(
        hypothesis.split() == source.split() != reference.split()
        for source, reference, hypothesis in zip(sources, references, hypotheses, strict=True)
    )
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the translations copy the source: the corpus has untranslated pairs, or one file on both "
        "sides; count them with transduce doctor"
    )


def _one_for_all(_: Texts, references: Texts, hypotheses: Texts) -> str | None:
    share, expected = (
        max(Counter(texts).values()) / len(texts) for texts in (hypotheses, references)
    )
    if len(hypotheses) == 1 or share < MANY or expected >= MANY:
        return None
    return (
        f"{share:.0%} of the translations are one and the same: the model does not look at the source yet, or the two "
        "sides are not aligned; train longer, then try transduce doctor"
    )


def _loops(_: Texts, __: Texts, hypotheses: Texts) -> str | None:
    share = _share(
        _is_loop(text.split() if " " in text.strip() else list(text)) for text in hypotheses
    )
    if share < MANY:
        return None
    return (
        f"{share:.0%} of the translations repeat themselves: usual early in training; if it lasts past the warm-up, "
        "halve training.learning_rate, or look at the data with transduce doctor"
    )


def _wrong_language(sources: Texts, references: Texts, hypotheses: Texts) -> str | None:
    """Another script than the references', or words that only the sources have."""
    expected, found = _script(references), _script(hypotheses)
    of_sources, of_references = (
        {word for text in texts for word in text.lower().split()} for texts in (sources, references)
    )
    words = [word for text in hypotheses for word in text.lower().split()]
    like_sources = _share(word in of_sources and word not in of_references for word in words)
    like_references = _share(word in of_references and word not in of_sources for word in words)
    if found and expected and found != expected:
        what = f"are written in {found} letters and the references in {expected}"
    elif like_sources > max(0.3, 2 * like_references):
        what = "use the words of the source language"
    else:
        return None
    return (
        f"the translations {what}: check that data.source_language, data.target_language and the files of training "
        "and validation are the right way round"
    )


def _share(marks: Iterable[bool]) -> float:
    found = list(marks)
    return sum(found) / max(len(found), 1)


def _is_loop(units: Sequence[str]) -> bool:
    """Whether at most a third of the words of a long text, or of its pairs of words, are different ones."""
    pairs = set(pairwise(units))
    return len(units) >= 8 and min(len(set(units)), len(pairs)) <= len(units) / 3


def _script(texts: Texts) -> str | None:
    """The script of most letters: the first word of their Unicode names."""
    letters = (letter for text in texts for letter in text[:200] if letter.isalpha())
    names = (unicodedata.name(letter, "?").split()[0] for letter in letters)
    scripts = Counter(ONE_SCRIPT.get(name, name) for name in names)
    return max(scripts, key=scripts.__getitem__).capitalize() if scripts else None
