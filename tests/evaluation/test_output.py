"""What translations look like: lengths, copies, and repetitions."""

import pytest
import sacrebleu

from tests.evaluation.systems import damaged, parallel_texts
from transduce.evaluation.output import describe_output

SOURCES, REFERENCES = parallel_texts()


def describe(*triples):
    """Of (source, reference, hypothesis)."""
    sources, references, hypotheses = zip(*triples, strict=True)
    return describe_output(hypotheses, references, sources)


def test_the_length_ratio_is_the_one_of_bleu():
    hypotheses = damaged(REFERENCES, 0.3)
    bleu = sacrebleu.corpus_bleu(hypotheses, [REFERENCES])
    found = describe_output(hypotheses, REFERENCES, SOURCES)
    assert found.length_ratio == pytest.approx(bleu.sys_len / bleu.ref_len)
    assert found.length_ratio < 0.9


def test_a_copy_of_the_source_counts_unless_the_reference_is_one():
    found = describe(
        ("a small house", "ein kleines Haus", " a  small house"),
        ("Angela Merkel", "Angela Merkel", "Angela Merkel"),
        ("a house", "ein Haus", "ein Haus"),
    )
    assert found.copied_sentences == 1


def test_the_copy_rate_is_the_share_of_words_that_the_source_has():
    found = describe(
        ("Mr. Jones has 12 cats", "Herr Jones hat 12 Katzen", "Herr Jones Jones 12 has")
    )
    assert found.copied_words == pytest.approx(3 / 5)  # the second "Jones" is not in the source
    assert found.copied_words_of_references == pytest.approx(2 / 5)


def test_translations_of_spaces_are_empty():
    assert describe(("a", "b", " \t"), ("a", "b", ""), ("a", "b", ".")).empty == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ja ja ja", 1),
        ("Ja, ja, JA!", 1),
        ("ja ja nein ja", 0),
        ("so ist es so ist es so ist es", 1),
        ("er ist so ist es so ist es und so ist es", 0),
        ("x der Mann und der Mann und der Mann und y", 1),
        ("der Mann und der Mann und der Mann", 0),
        ("one two three four five " * 3, 0),  # longer than four words
        ("", 0),
    ],
)
def test_words_three_times_in_a_row_are_a_repetition(text, expected):
    assert describe(("source", "reference", text)).repetitive == expected


def test_a_repetition_of_the_reference_is_not_counted():
    assert describe(("no no no", "nein nein nein", "nein nein nein nein")).repetitive == 0
