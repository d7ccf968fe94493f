"""§5.3: Adam with the paper's numbers, Equation 3, and what is common today."""

import math
from dataclasses import replace

import pytest
import torch

from tests.model.conftest import build
from transduce.config import TrainingConfig
from transduce.presets import BASE
from transduce.training.optimizer import build_optimizers, learning_rate, set_learning_rate


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_adam_is_its_formula_with_the_papers_numbers(optimizer):
    gradients = torch.randn(3, 5, dtype=torch.float64) * 1e-8  # so small that eps matters
    weight = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizers = build_optimizers([("weight", weight)], TrainingConfig(optimizer=optimizer))
    expected, m, v = torch.zeros(3, 5, dtype=torch.float64)
    for step, gradient in enumerate(gradients, start=1):
        weight.grad = gradient.clone()
        set_learning_rate(optimizers, 0.1 * step)
        optimizers[0].step()
        m = 0.9 * m + 0.1 * gradient
        v = 0.98 * v + 0.02 * gradient**2
        expected = expected - 0.1 * step * m / (1 - 0.9**step) / (
            (v / (1 - 0.98**step)).sqrt() + 1e-9
        )
    assert torch.allclose(weight, expected)


@pytest.mark.parametrize(
    ("optimizer", "expected"), [("adam", [1.9, -2.9]), ("adamw", [1.9, -2.85])]
)
def test_weight_decay_is_decoupled_in_adamw_alone(optimizer, expected):
    weight = torch.nn.Parameter(torch.tensor([2.0, -3.0]))
    optimizers = build_optimizers(
        [("weight", weight)], TrainingConfig(optimizer=optimizer, weight_decay=0.5)
    )
    set_learning_rate(optimizers, 0.1)
    weight.grad = torch.zeros(2)
    optimizers[0].step()
    # Without a gradient AdamW shrinks in proportion; Adam takes the decay for a gradient and steps by the rate.
    assert weight.tolist() == pytest.approx(expected)


def test_muon_takes_the_matrices_inside_the_layers_and_adam_the_rest():
    model = build(sharing="none", positions="learned", max_positions=9)
    optimizers = build_optimizers(model.named_parameters(), TrainingConfig(optimizer="muon"))
    names = {id(weight): name for name, weight in model.named_parameters()}
    by_muon, by_adam = (
        {names[id(w)] for w in optimizer.param_groups[0]["params"]} for optimizer in optimizers
    )
    assert by_muon | by_adam == set(names.values())
    assert by_muon & by_adam == set()
    assert by_muon == {name for name in names.values() if ".w_" in name and name.endswith("weight")}


@torch.no_grad()
def test_muon_steps_are_as_large_as_adams_and_decay_too():
    weight, bias = torch.nn.Parameter(torch.ones(64, 256)), torch.nn.Parameter(torch.ones(3))
    training = TrainingConfig(optimizer="muon", weight_decay=0.5)
    muon, _ = build_optimizers(
        [("encoder.0.feed_forward.w_1.weight", weight), ("bias", bias)], training
    )
    set_learning_rate([muon], 0.1)
    weight.grad = torch.zeros_like(weight)
    muon.step()
    assert torch.allclose(weight, torch.tensor(0.95))
    weight.grad = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    before = weight * 0.95
    muon.step()
    # Adam's steps have a root mean square of about 0.2 times the rate.
    assert float((weight - before).square().mean().sqrt()) == pytest.approx(0.2 * 0.1, rel=0.3)


def test_every_optimizer_takes_the_rate():
    optimizers = build_optimizers(build().named_parameters(), TrainingConfig(optimizer="muon"))
    set_learning_rate(optimizers, 0.25)
    assert [float(optimizer.param_groups[0]["lr"]) for optimizer in optimizers] == [0.25, 0.25]


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
