"""BLEU, chrF and TER as sacreBLEU computes them, and BLEU as the paper reports it (§6.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transduce.errors import InputError

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
    """Compare translations with references line by line. TER is slow and therefore optional."""
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
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    return Scores(
        _measure("BLEU", BLEU(), hypotheses, references),
        _measure("chrF", CHRF(), hypotheses, references),
        _tokenized_bleu(hypotheses, references),
        _measure("TER", TER(), hypotheses, references) if ter else None,
    )


def _measure(name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    value = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
    return Score(name, value, str(metric.get_signature()))


def _tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Return BLEU with split compounds, as in Table 2: the parts of a compound are words.

    Departs from §6.1: the tokens are those of mteval-v13a and not of the Moses script; they differ
    in rare punctuation marks.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize = Tokenizer13a()

    def words(texts: Sequence[str]) -> list[str]:
        return [_COMPOUND.sub(" ##AT##-##AT## ", tokenize(text)) for text in texts]

    metric = BLEU(tokenize="none", force=True)
    score = _measure("tokenized BLEU", metric, words(hypotheses), words(references))
    signature = score.signature.replace("tok:none", "tok:13a+compounds-split")
    return Score(score.name, score.value, signature)
