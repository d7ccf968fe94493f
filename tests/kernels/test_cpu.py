"""Dropout on the CPU, from 16 random bits an element."""

import pytest
import torch

from transduce.kernels.cpu import SparingDropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
def test_dropout_zeroes_its_share_and_scales_up_the_rest(p):
    torch.manual_seed(1)
    x = torch.full((501, 801), 2.0, requires_grad=True)
    y = dropout(x, p)
    kept = y != 0
    assert float(kept.float().mean()) == pytest.approx(1 - p, abs=3e-3)
    # Independent.
    assert float(kept.float().mean(0).std()) == pytest.approx((p * (1 - p) / 501) ** 0.5, rel=0.15)
    assert torch.allclose(y[kept], torch.tensor(2 / (1 - p)), rtol=2e-4)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient * 2, y)


def test_dropout_acts_in_training_alone_and_repeats_with_the_seed():
    layer, x = SparingDropout(0.5), torch.randn(7, 3)
    assert layer.eval()(x) is x
    layer.train()
    first, second = (torch.manual_seed(seed) and layer(x) for seed in (3, 3))
    assert torch.equal(first, second)
    assert not torch.equal(first, layer(x))
    assert SparingDropout(0.0).train()(x) is x
