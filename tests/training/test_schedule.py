"""§5.3: Equation 3, and the decays that are common today."""

import math
from dataclasses import replace

import pytest

from transduce.presets import BASE
from transduce.training.schedule import learning_rate


def with_schedule(**changes):
    return replace(BASE, training=replace(BASE.training, **changes))


@pytest.mark.parametrize("step", [1, 100, 3999, 4000, 4001, 50_000, 100_000])
def test_the_rate_is_equation_3(step):
    assert learning_rate(BASE, step) == pytest.approx(
        512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    )


def test_the_rate_peaks_at_the_end_of_the_warm_up():
    rates = [learning_rate(BASE, step) for step in range(1, 8000)]
    assert max(rates) == rates[4000 - 1] == pytest.approx(7.0e-4, rel=0.01)


@pytest.mark.parametrize("schedule", ["stable-decay", "cosine"])
def test_other_schedules_warm_up_alike_and_end_at_zero(schedule):
    recipe = with_schedule(schedule=schedule, steps=10_000, warmup_steps=1_000, learning_rate=0.01)
    assert learning_rate(recipe, 500) == pytest.approx(0.005)
    assert learning_rate(recipe, 1_000) == pytest.approx(0.01)
    assert (
        learning_rate(recipe, 10_000)
        == learning_rate(recipe, 12_000)
        == pytest.approx(0.0, abs=1e-9)
    )
    rates = [learning_rate(recipe, step) for step in range(1_000, 10_001)]
    assert rates == sorted(rates, reverse=True)


def test_cosine_is_half_way_down_half_way_through():
    recipe = with_schedule(schedule="cosine", steps=10_000, warmup_steps=1_000, learning_rate=0.01)
    assert learning_rate(recipe, 5_500) == pytest.approx(0.005)
    assert learning_rate(recipe, 3_250) == pytest.approx(0.01 * (0.5 + math.sqrt(0.125)))


def test_stable_decay_stays_at_the_peak_until_the_last_fifth():
    recipe = with_schedule(
        schedule="stable-decay", steps=10_000, warmup_steps=1_000, learning_rate=0.01
    )
    assert learning_rate(recipe, 8_000) == 0.01
    assert learning_rate(recipe, 9_000) == pytest.approx(0.005)
