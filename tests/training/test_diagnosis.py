"""Each cause of a BLEU of 0 is recognized, and a good score needs no diagnosis."""

from dataclasses import replace

import pytest

from transduce.presets import BASE, MODERN
from transduce.recipe import load_recipe
from transduce.training.diagnosis import diagnose, divergence_advice
from transduce.training.plan import settings_advice

SOURCES = [
    "Two men are sitting on a bench .",
    "A dog runs through the park .",
    "She reads the news .",
]
REFERENCES = [
    "Zwei M\u00e4nner sitzen auf einer Bank .",
    "Ein Hund rennt durch den Park .",
    "Sie liest die Nachrichten .",
]


@pytest.mark.parametrize(
    ("hypotheses", "reason"),
    [
        (["", " ", "Ein Hund"], "67% of the translations are empty"),
        (["\u2047 \u2047 \u2047", "\u2047 .", "<unk> <unk>"], "86% of the words are unknown"),
        (SOURCES, "100% of the translations copy the source"),
        (["Ein Mann .", "Ein Mann .", "Ein Mann ."], "are identical"),
        (["der " * 20, "Ein Hund und " * 9, "Sie liest ."], "67% of the translations repeat themselves"),
        (["\u7684" * 30, "\u7684\u4e00" * 20, "\u662f"], "67% of the translations repeat themselves"),
        (["Men are a park .", "The dog reads on a bench", "She runs sitting ."], "the words of the source language"),
        (["\u0434\u0432\u0430", "\u0441\u043e", "\u043e\u043d"], "in Cyrillic letters and the references in Latin"),
        (["Bank einer Zwei", "Park den Hund", "Sie auf Nachrichten"], "an untrained model; train longer"),
    ],
)  # fmt: skip
def test_a_score_of_zero_is_explained_in_one_line(hypotheses, reason):
    text = diagnose(SOURCES, REFERENCES, hypotheses, 0.04)
    assert text is not None
    assert reason in text
    assert text.startswith("BLEU is 0.0")
    assert "\n" not in text


def test_a_good_score_needs_no_diagnosis():
    assert diagnose(SOURCES, REFERENCES, SOURCES, 12.0) is None
    assert diagnose([], [], [], 0.0) is None


def test_a_right_answer_is_not_taken_for_a_fault():
    same = ["2020-01-01", "Berlin", "Paris"]  # names and numbers: source and reference are one
    assert "copy" not in str(diagnose(same, same, same, 0.0))
    assert "identical" not in str(diagnose(SOURCES, ["Ja ."] * 3, ["Ja ."] * 3, 0.0))


def test_japanese_in_kanji_is_not_another_script():
    text = diagnose(
        ["One .", "Two ."],
        ["\u306b\u307b\u3093\u3054", "\u308f\u305f\u3057"],
        ["\u65e5\u672c\u8a9e", "\u79c1"],
        0.0,
    )
    assert "letters" not in str(text)


def test_advice_names_settings_that_work_and_only_those_not_yet_in_use():
    text = divergence_advice(BASE, bf16=True)
    assert "training.precision=float32" in text
    assert "training.learning_rate=0.00035 (now 0.0007)" in text
    assert "training.warmup_steps=8000" in text
    assert "clip_norm=1.0" in text
    assert "model.norm_order=pre" in text
    changed = load_recipe("base", [part.split(" (")[0] for part in _tries(text)])
    assert changed.model.norm_order == "pre"
    # Ends before its warm-up does.
    short = load_recipe("base", ["training.steps=9", "training.schedule=cosine"])
    assert "training.learning_rate=0.00035 (now 0.0007)" in divergence_advice(short, bf16=True)
    text = divergence_advice(MODERN, bf16=False)
    assert "clip_norm" not in text
    assert "norm_order" not in text
    assert "precision" not in text


@pytest.mark.parametrize(
    ("set_to", "advised"),
    [(1000.0, "0.0007 (the paper's; now 1e+03)"), (0.001, "0.0005 (now 0.001)")],
)
def test_a_learning_rate_far_above_the_papers_is_not_halved(set_to, advised):
    wild = load_recipe("base", [f"training.learning_rate={set_to}"])
    assert f"training.learning_rate={advised}" in divergence_advice(wild, bf16=True)


def test_a_moving_average_and_averaged_checkpoints_exclude_each_other():
    training = replace(BASE.training, ema=0.99)
    (line,) = settings_advice(training)
    assert "checkpoints are not averaged" in line
    assert list(settings_advice(replace(training, average_checkpoints=1))) == []
    assert list(settings_advice(BASE.training)) == []


def test_repeated_blanks_are_not_an_empty_translation():
    text = diagnose(["a b", "c d"], ["e f", "g h"], [" " * 50, " " * 40], 0.0)
    assert "repeat themselves" in text


def _tries(text):
    return text.partition("and try ")[2].split(", or ")
