"""Muon takes the steps of torch's, for all matrices of a shape at once."""

import pytest
import torch

from transduce.training.muon import Muon, orthogonal

SHAPES = [(64, 64), (64, 256), (64, 64), (256, 64)]


def matrices():
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def gradients(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def step(optimizer, weights, values):
    for weight, value in zip(weights, values, strict=True):
        weight.grad = value
    optimizer.step()


def test_the_steps_are_those_of_torch():
    ours, theirs = matrices(), matrices()
    oracle = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    optimizer = Muon(ours, lr=torch.tensor(0.1), weight_decay=0.3)
    for seed in range(4):
        step(optimizer, ours, gradients(seed))
        step(oracle, theirs, gradients(seed))
        for weight, expected in zip(ours, theirs, strict=True):
            assert torch.allclose(weight, expected, atol=1e-6)


def test_singular_values_become_nearly_one():
    generator = torch.Generator().manual_seed(0)
    for shape in (2, 64, 256), (2, 256, 64):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=generator)))
        assert 0.6 < float(values.min()) < float(values.max()) < 1.3


def test_a_weight_without_a_gradient_stays():
    weights = matrices()
    before = weights[0].detach().clone()
    step(Muon(weights, lr=0.1, weight_decay=0.3), weights, [None, *gradients(0)[1:]])
    assert torch.equal(weights[0], before)


def test_a_gradient_that_is_not_finite_changes_nothing_and_python_need_not_look_at_it():
    weights, twins = matrices(), matrices()
    optimizer = Muon(weights, lr=torch.tensor(0.1), weight_decay=0.3)
    twin = Muon(twins, lr=torch.tensor(0.1), weight_decay=0.3)
    for seed in range(3):
        broken = seed == 1
        optimizer.found_inf = torch.tensor(float(broken))
        values = gradients(seed)
        if broken:
            values[2][0, 0] = torch.nan
        else:
            step(twin, twins, gradients(seed))
        step(optimizer, weights, values)
    for weight, expected in zip(weights, twins, strict=True):
        assert torch.equal(weight, expected)
        average = optimizer.state[weight]["momentum_buffer"]
        assert torch.equal(average, twin.state[expected]["momentum_buffer"])


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
def test_a_rate_of_zero_changes_nothing(rate):
    weights = matrices()
    optimizer = Muon(weights, lr=rate * 0, weight_decay=0.3)
    before = [weight.detach().clone() for weight in weights]
    step(optimizer, weights, gradients(0))
    for weight, expected in zip(weights, before, strict=True):
        assert torch.equal(weight, expected)
