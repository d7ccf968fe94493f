"""The words that a user may have meant."""

import pytest

from transduce.cli.mistakes import suggest


@pytest.mark.parametrize(
    ("word", "known", "end"),
    [
        ("trian", ["train", "score"], "did you mean train?"),
        ("tra", ["train", "translate", "score"], "did you mean train or translate?"),
        ("--out", ["--run", "--store"], "expected one of --run, --store"),
        ("--rum", ["--run", "--store"], "did you mean --run?"),
        ("--", ["--run", "--store"], "expected one of --run, --store"),
        ("x", ["decode"], "expected decode"),
    ],
)
def test_a_similar_word_is_suggested(word, known, end):
    assert suggest(word, known) == end
