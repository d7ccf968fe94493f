"""Pairs in other cases: as many as asked for, the same ones each time, and only where they differ."""

import pytest

from transduce.data.case_variants import case_variants

SOURCES = [f"The street number {n} is wide." for n in range(4_000)]
TARGETS = [f"Die Straße Nummer {n} ist breit." for n in range(4_000)]


def test_variants_are_pairs_in_capitals_and_pairs_with_a_source_in_lower_case():
    sources, targets = case_variants(SOURCES, TARGETS, 0.1, 1, 0)
    pairs = dict(zip(SOURCES, TARGETS, strict=True))
    in_capitals = {source.upper(): target.upper() for source, target in pairs.items()}
    in_lower_case = {source.lower(): target for source, target in pairs.items()}
    found = dict(zip(sources, targets, strict=True))
    capitals = {source: target for source, target in found.items() if source.isupper()}
    lower_case = {source: target for source, target in found.items() if not source.isupper()}
    assert capitals.items() <= in_capitals.items()
    assert lower_case.items() <= in_lower_case.items()
    assert len(capitals) == pytest.approx(400, abs=80)
    assert len(lower_case) == pytest.approx(400, abs=80)
    assert "DIE STRASSE NUMMER" in next(iter(capitals.values()))


def test_they_are_the_same_for_the_same_seed_only():
    first = case_variants(SOURCES, TARGETS, 0.1, 1, 0)
    assert case_variants(SOURCES, TARGETS, 0.1, 1, 0) == first
    assert case_variants(SOURCES, TARGETS, 0.1, 1, 400) != first
    assert case_variants(SOURCES, TARGETS, 0.1, 2, 0) != first


def test_a_pair_that_would_stay_as_it_is_has_no_variant():
    sources = ["1984", "STOP", "stop", "日本語"]
    found, _ = case_variants(sources, sources, 0.5, 1)
    assert set(found) <= {"STOP", "stop"}
    assert case_variants(sources * 100, sources * 100, 0.0, 1) == ([], [])
