"""Training on the CPU: dropout from 16 random bits an element, attention of bf16 in float32."""

from unittest.mock import MagicMock

import pytest
import torch

from tests.model.conftest import build
from transduce.kernels import cpu
from transduce.kernels.accelerate import accelerate
from transduce.kernels.cpu import SparingDropout, dropout
from transduce.model import Tokens
from transduce.model.attention import Mask


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


def test_attention_of_bf16_is_computed_in_float32_while_it_trains():
    plain, model = build(), build()
    accelerate(model, "cpu")
    plain, ours = plain.encoder[0].self_attention, model.encoder[0].self_attention
    tokens = Tokens.padded([[5, 6, 7], [8]], 30)
    mask = Mask(tokens, tokens, causal=True)
    q, k, v = (torch.randn(2, 3, 3, 8).bfloat16().requires_grad_() for _ in range(3))

    # The value and the gradients are those of float32, rounded once.
    exact = [each.detach().float().requires_grad_() for each in (q, k, v)]
    expected = plain.attend(*exact, mask)
    found = ours.attend(q, k, v, mask)
    assert torch.equal(found, expected.bfloat16())
    gradients = torch.autograd.grad(found.sum(), (q, k, v))
    for mine, theirs in zip(gradients, torch.autograd.grad(expected.sum(), exact), strict=True):
        assert torch.equal(mine, theirs.bfloat16())

    # Nothing changes in float32, or for a search.
    assert torch.equal(ours.attend(*exact, mask), expected)
    with torch.no_grad():
        quick = [each.detach() for each in (q, k, v)]
        assert torch.equal(ours.attend(*quick, mask), plain.attend(*quick, mask))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="weights are not packed")
def test_the_thread_that_may_outlive_python_does_not_call_torch(monkeypatch):
    """Torch would abort the process at its exit."""
    threads = MagicMock()
    monkeypatch.setattr(cpu, "Thread", threads)
    monkeypatch.setattr(cpu, "LEAST", 0)  # small matrices are packed, too
    accelerate(build().float(), "cpu", frozen=True)
    thread = threads.call_args.kwargs
    assert thread["args"][0]
    monkeypatch.setattr(cpu, "torch", None)
    thread["target"](*thread["args"])
