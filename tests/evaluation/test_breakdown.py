"""Scores by length, and the worst sentences."""

import sacrebleu

from tests.evaluation.systems import damaged, parallel_texts
from transduce.evaluation.breakdown import score_by_length, worst_sentences

SOURCES, REFERENCES = parallel_texts()
HYPOTHESES = damaged(REFERENCES, 0.2)


def test_every_sentence_is_in_one_group_by_the_words_of_its_source():
    words = [0, 1, 10, 11, 20, 21, 50, 51, 300]
    sources = [" ".join(["w"] * count) for count in words]
    texts = ["x y z"] * len(words)
    groups = score_by_length(texts, texts, sources)
    sizes = {group.name: group.sentences for group in groups}
    assert sizes == {"1-10": 3, "11-20": 2, "21-30": 1, "41-50": 1, "51+": 2}


def test_the_score_of_a_group_is_its_corpus_bleu():
    sources = ["w " * (5 if number % 2 else 15) for number in range(len(REFERENCES))]
    short, long = score_by_length(HYPOTHESES, REFERENCES, sources)
    expected = sacrebleu.corpus_bleu(HYPOTHESES[1::2], [REFERENCES[1::2]], force=True)
    assert short.bleu == expected.score
    assert short.length_ratio == expected.sys_len / expected.ref_len
    assert long.bleu == sacrebleu.corpus_bleu(HYPOTHESES[::2], [REFERENCES[::2]], force=True).score


def test_the_worst_sentences_have_the_lowest_chrf_and_their_line_numbers():
    hypotheses = list(REFERENCES)
    hypotheses[7] = "zzz"
    hypotheses[3] = hypotheses[3][:-8]
    first, second = worst_sentences(hypotheses, REFERENCES, SOURCES, 2)
    assert (first.line, first.chrf, second.line) == (8, 0, 4)
    assert first.source == SOURCES[7]
    assert (
        second.chrf == sacrebleu.sentence_chrf(hypotheses[3], [REFERENCES[3]], word_order=2).score
    )
    assert len(worst_sentences(hypotheses, REFERENCES, SOURCES, 5)) == 2  # the others are perfect
    assert worst_sentences(hypotheses, REFERENCES, SOURCES, 0) == []
    blank = worst_sentences(["", "a"], [" ", "b"], ["", "c"], 2)
    assert [sentence.line for sentence in blank] == [2]  # there is nothing to translate in line 1


def test_a_link_holds_any_sentence():
    from urllib.parse import parse_qs

    source = 'He said: "R&D = 5%+" \u2028?'
    (sentence,) = worst_sentences(["x"], ["y"], [source], 1)
    view, _, query = sentence.link.partition("?")
    assert view == "#inspect"
    assert parse_qs(query) == {"text": [source]}
