"""Scores: sacreBLEU's numbers under their signatures, and the paper's kind of BLEU apart."""

import pytest
import sacrebleu

from transduce.errors import InputError
from transduce.evaluation.scores import metrics, score

REFERENCES = [
    "Der Hund ist gro\u00df und alt.",
    "Ein well-known Haus steht da hinten.",
    "Sie lesen viel in B\u00fcchern.",
]
HYPOTHESES = [
    "Der Hund ist alt und gro\u00df.",
    "Ein well known Haus steht da.",
    "Sie lesen viel in B\u00fcchern.",
]


def test_the_numbers_are_sacrebleus():
    scores = score(HYPOTHESES, REFERENCES, ter=True)
    assert scores.bleu.value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores.ter is not None
    assert scores.ter.value == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert "tok:13a" in scores.bleu.signature
    assert "version:" in scores.chrf.signature


def test_compounds_are_split_in_the_papers_kind_alone():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.tokenized_bleu.value > scores.bleu.value
    assert "compounds-split" in scores.tokenized_bleu.signature
    same = score(HYPOTHESES[2:], REFERENCES[2:])
    assert same.tokenized_bleu.value == pytest.approx(same.bleu.value)
    assert [one.name for one in scores] == ["BLEU", "chrF", "tokenized BLEU"]


def test_the_papers_kind_is_bleu_over_the_parts_of_compounds():
    """The oracle is sacreBLEU on texts that were tokenized and split beforehand."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize = Tokenizer13a()
    hypotheses = ["A well-known pre-war house - and Mr. B.", "It has 3-4 rooms, 1990-2000.", "x"]
    references = ["A well-known post-war house - and Mrs. B.", "It has 3-5 rooms, 1990-2000.", "y"]

    def split(text):
        words = tokenize(text).split()
        parts = [word.replace("-", " ##AT##-##AT## ") if len(word) > 1 else word for word in words]
        return " ".join(parts)

    expected = sacrebleu.corpus_bleu(
        [split(text) for text in hypotheses],
        [[split(text) for text in references]],
        tokenize="none",
        force=True,
    )
    assert score(hypotheses, references).tokenized_bleu.value == pytest.approx(expected.score)


def test_chrf_plus_plus_counts_pairs_of_words():
    metric = metrics()["chrf_plus_plus"]
    found = metric.corpus_score(HYPOTHESES, [REFERENCES]).score
    assert found == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES], word_order=2).score
    assert "nw:2" in str(metric.get_signature())


def test_a_perfect_translation_scores_100():
    scores = score(REFERENCES, REFERENCES)
    assert [one.value for one in scores] == pytest.approx([100.0] * 3)


def test_what_is_not_parallel_is_refused():
    with pytest.raises(InputError, match="3 translations but 2 references; they must be parallel"):
        score(HYPOTHESES, REFERENCES[:2])
    with pytest.raises(InputError, match="nothing to score"):
        score([], [])
