"""The cleaner: the same decisions pair by pair, chunk by chunk, and in several processes."""

import os
import signal
from dataclasses import asdict

import pytest

from transduce.config import CleanConfig
from transduce.data.cleaning import cleaner as cleaner_module
from transduce.data.cleaning import rules
from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.pairs import Chunk, Pair
from transduce.errors import DataError

PAIRS = [
    Pair(
        f"The {n % 70}th sentence 'of' many, the same {'again' * (n % 3)}",
        f'Der {n % 70}. "Satz" von vielen',
        "x",
        n,
    )
    for n in range(1, 400)
] + [Pair("", "leer", "x", 400), Pair("a\0b", "c", "x", 401)]


def chunks(size):
    for start in range(0, len(PAIRS), size):
        part = PAIRS[start : start + size]
        yield Chunk(
            [p.source for p in part], [p.target for p in part], [p.line for p in part], "x", "x"
        )


def check(cleaner, pair):
    chunk = Chunk([pair.source], [pair.target], [pair.line], pair.file, pair.file)
    return cleaner.decide(chunk)[0]


def clean(size, processes=1):
    cleaner = Cleaner(CleanConfig(language_sample=50), "en", "de")
    reasons = [reason for _, found in cleaner.clean(chunks(size), processes) for reason in found]
    return reasons, asdict(cleaner.report())


def test_decisions_do_not_depend_on_the_chunks():
    cleaner = Cleaner(CleanConfig(language_sample=50), "en", "de")
    reasons = [check(cleaner, pair) for pair in PAIRS]
    report = asdict(cleaner.report())
    assert {"duplicate", "empty", "control-characters", None} == set(reasons)
    assert clean(1000) == clean(7) == (reasons, report)


def test_the_sample_is_fair_whatever_the_chunks():
    """The languages of the pairs with the smallest hashes are looked at, wherever they are in the corpus."""
    french = "La commission a longuement discuté de la proposition numéro"
    pairs = [
        Pair(f"The commission has discussed the proposal number {n}", f"{french} {n}", "x", n)
        for n in range(300)
    ]
    looked_at = []
    for size in (1, 7, 300):
        cleaner = Cleaner(CleanConfig(language_sample=3), "en", "de")
        for start in range(0, 300, size):
            part = pairs[start : start + size]
            cleaner.decide(
                Chunk(
                    [p.source for p in part],
                    [p.target for p in part],
                    [p.line for p in part],
                    "x",
                    "x",
                )
            )
        for _ in range(2):  # asking again changes nothing
            finding = cleaner.report().findings["wrong-language"]
            assert (finding.count, finding.of) == (3, 3)
        looked_at.append([example.line for example in finding.examples])
    assert looked_at[0] == looked_at[1] == looked_at[2] == sorted(looked_at[0])
    assert looked_at[0] != [0, 1, 2]


@pytest.mark.ranks
def kill_this_worker(chunk, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_one_line(monkeypatch):
    monkeypatch.setattr(cleaner_module, "_FEW_CHUNKS", 0)
    monkeypatch.setattr(cleaner_module, "check_chunk", kill_this_worker)
    with pytest.raises(DataError, match="a worker process was killed"):
        clean(10, processes=2)


def test_decisions_do_not_depend_on_the_processes():
    assert clean(10, processes=2) == clean(10)


def test_the_message_that_nothing_is_left_counts_the_reasons():
    cleaner = Cleaner(CleanConfig(), "en", "de")
    for pair in (
        Pair("", "leer", "x", 1),
        Pair("", "nichts", "x", 2),
        Pair("same", "same", "x", 3),
    ):
        check(cleaner, pair)
    message = cleaner.report().nothing_left()
    assert message == "no usable pair is left of 3 (2 empty, 1 copy)"


def test_rules_that_are_documented_are_the_rules_there_are():
    drops, warns = rules.__doc__.split("These rules drop")[1].split("These rules only warn")
    for text, dropping in ((drops, True), (warns, False)):
        table = text.split("\n\n")[1].split()
        assert sorted(table) == sorted(
            name for name, rule in rules.RULES.items() if rule.drops is dropping
        )
