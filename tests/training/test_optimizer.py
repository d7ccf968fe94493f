"""§5.3: Adam with the paper's numbers, and what Muon takes."""

import pytest
import torch

from tests.model.conftest import build
from transduce.config import TrainingConfig
from transduce.training.optimizer import build_optimizers, set_learning_rate


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
