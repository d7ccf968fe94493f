"""Where a score comes from: the groups of sentences of similar length, and the worst sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from transduce.evaluation.output import length_ratio
from transduce.evaluation.words import WITH_SPACES, tokenization

LAST_WORDS = (10, 20, 30, 40, 50)  # the longest source of each group; one more has the rest


@dataclass(frozen=True)
class LengthGroup:
    """The sentences whose sources have a similar number of words."""

    first: int  # the fewest words of a source, or characters in a script without spaces
    last: int | None  # the most, or None without a limit
    sentences: int
    bleu: float
    length_ratio: float

    @property
    def name(self) -> str:
        """The number of words, such as 11-20 or 51+."""
        return f"{self.first}+" if self.last is None else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class WorstSentence:
    """A translation that has little in common with its reference."""

    line: int  # in the files, from 1
    chrf: float  # chrF++ of this sentence
    source: str
    reference: str
    hypothesis: str

    @property
    def link(self) -> str:
        """The address of the sentence in the page that `transduce serve` shows."""
        return "#inspect?" + urlencode({"text": self.source})


def score_by_length(
    hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]
) -> list[LengthGroup]:
    """Return BLEU and the length ratio of each group that has sentences."""
    from sacrebleu.metrics.bleu import BLEU

    words = tokenization(references)
    has_spaces = tokenization(sources) == WITH_SPACES
    lengths = [max(1, len(source.split() if has_spaces else source)) for source in sources]
    groups = []
    first = 1
    for last in (*LAST_WORDS, None):
        members = [
            index
            for index, length in enumerate(lengths)
            if first <= length and (last is None or length <= last)
        ]
        if members:
            translated = [hypotheses[index] for index in members]
            expected = [references[index] for index in members]
            bleu = BLEU(force=True, tokenize=words).corpus_score(translated, [expected]).score
            ratio = length_ratio(translated, expected, words)
            groups.append(LengthGroup(first, last, len(members), float(bleu), ratio))
        first = (last or 0) + 1
    return groups


def worst_sentences(
    hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str], count: int
) -> list[WorstSentence]:
    """Return the sentences with the lowest chrF++, the worst first, and no perfect ones."""
    from sacrebleu.metrics.chrf import CHRF

    if count < 1:
        return []
    metric = CHRF(word_order=2)
    sentences = []
    for line, (hypothesis, reference, source) in enumerate(
        zip(hypotheses, references, sources, strict=True), start=1
    ):
        if not source.strip() and not reference.strip():
            continue  # there was nothing to translate
        if hypothesis.split() == reference.split():
            continue
        chrf = float(metric.sentence_score(hypothesis, [reference]).score)
        sentences.append(WorstSentence(line, chrf, source, reference, hypothesis))
    return sorted(sentences, key=lambda sentence: sentence.chrf)[:count]
