"""BLEU, chrF and TER as sacreBLEU computes them, and BLEU as the paper reports it (§6.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transduce.errors import InputError
from transduce.evaluation.words import WITH_SPACES, tokenization

_COMPOUND = re.compile(r"(?<=\S)-(?=\S)")


@dataclass(frozen=True)
class Score:
    """A score. Two scores are comparable only if their signatures are equal."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True)
class Scores:
    """The scores of a test set; `bleu` is the one to compare with recent papers."""

    bleu: Score
    chrf: Score
    tokenized_bleu: Score  # comparable with the paper's Table 2 and with nothing else
    ter: Score | None = None

    def __iter__(self) -> Any:
        scores = (self.bleu, self.chrf, self.tokenized_bleu, self.ter)
        return iter([score for score in scores if score])

    def to_json(self) -> dict[str, Any]:
        """Return the value and signature of each score by name."""
        return {key: value for key, value in asdict(self).items() if value}


def score(hypotheses: Sequence[str], references: Sequence[str], *, ter: bool = False) -> Scores:
    """Compare translations with references line by line. TER is slow and therefore optional.

    `transduce.evaluation.report.evaluate` computes more: chrF++, confidence intervals, significance
    tests, and what is wrong with the translations.
    """
    check_parallel(hypotheses, references)
    measured = {}
    for key, metric in metrics(references, ter=ter).items():
        if key != "chrf_plus_plus":  # as slow as all others together
            value = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
            measured[key] = Score(NAMES[key], value, str(metric.get_signature()))
    return Scores(**measured)


def check_parallel(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise an InputError unless there are as many translations as references, and not none."""
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses):,} translations but {len(references):,} references; they must be "
            "parallel, line by line"
        )
    if not hypotheses:
        raise InputError(
            "there is nothing to score: no translations and no references; expected at least one "
            "of each"
        )


# The names of all scores for people, by their keys in JSON.
NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "chrf_plus_plus": "chrF++",
    "tokenized_bleu": "tokenized BLEU",
    "ter": "TER",
}


def metrics(references: Sequence[str] = (), *, ter: bool = False) -> dict[str, Any]:
    """Return the metrics of sacreBLEU that are reported, by their keys in JSON.

    The references say what a word of their language is.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    words = tokenization(references)
    found: dict[str, Any] = {
        "bleu": BLEU(tokenize=words),
        "chrf": CHRF(),
        "chrf_plus_plus": CHRF(word_order=2),
        "tokenized_bleu": _tokenized_bleu(words),
    }
    if ter:
        spaceless = words != WITH_SPACES
        found["ter"] = TER(normalized=spaceless, asian_support=spaceless)
    return found


def _tokenized_bleu(words: str) -> Any:
    """Return BLEU with split compounds, as in Table 2: the parts of a compound are words.

    Departs from §6.1: the tokens are those of mteval-v13a and not of the Moses script; they differ
    in apostrophes and typographic quotation marks.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(force=True, tokenize=words)
    tokenize = metric.tokenizer

    def split_compounds(text: str) -> str:
        return _COMPOUND.sub(" ##AT##-##AT## ", tokenize(text))

    metric.tokenizer = split_compounds
    metric.tokenizer_signature = f"{words}+compounds-split"
    return metric
