"""Scores: sacreBLEU's numbers under their signatures, and the paper's kind of BLEU apart."""

import json
from types import SimpleNamespace

import pytest
import sacrebleu

from transduce.config import Recipe
from transduce.errors import DataError, InputError
from transduce.evaluation.scores import score
from transduce.evaluation.test_set import print_scores, score_files

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


def test_a_perfect_translation_scores_100():
    scores = score(REFERENCES, REFERENCES)
    assert [one.value for one in scores] == pytest.approx([100.0] * 3)


def test_what_is_not_parallel_is_refused():
    with pytest.raises(InputError, match="3 translations but 2 references; they must be parallel"):
        score(HYPOTHESES, REFERENCES[:2])
    with pytest.raises(InputError, match="nothing to score"):
        score([], [])


def test_files_are_translated_and_scored(tmp_path, capsys):
    translator = SimpleNamespace(
        recipe=Recipe(),
        translate=lambda texts: [
            SimpleNamespace(text=text.upper(), notices=["cut"] * ("know" in text)) for text in texts
        ],
    )
    (tmp_path / "a.en").write_text("it is a small house\nthat is\u2028all we know\n")
    (tmp_path / "a.de").write_text("IT IS A SMALL HOUSE\nTHAT IS\u2028ALL WE KNOW\n")
    scores = score_files(translator, tmp_path / "a.en", tmp_path / "a.de")
    assert scores.bleu.value == pytest.approx(100)
    print_scores(scores, as_json=True)
    captured = capsys.readouterr()
    assert (
        captured.err
        == "transduce: 1 of 2 lines were split or cut; transduce translate says which\n"
    )
    assert json.loads(captured.out)["bleu"] == {
        "name": "BLEU",
        "value": scores.bleu.value,
        "signature": scores.bleu.signature,
    }
    print_scores(scores, as_json=False)
    assert scores.chrf.signature in capsys.readouterr().out
    (tmp_path / "a.de").write_text("one\n")
    with pytest.raises(
        DataError, match=r"a\.en has 2 lines but .*a\.de has 1; they must be parallel"
    ):
        score_files(translator, tmp_path / "a.en", tmp_path / "a.de")
