"""§3.3: the feed-forward network, written out for each activation."""

import math

import pytest
import torch

from tests.model.conftest import build

FORMULAS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "swish": lambda x: x / (1 + torch.exp(-x)),
}
GATED = {"swiglu": FORMULAS["swish"], "geglu": FORMULAS["gelu"]}


@pytest.mark.parametrize("activation", [*FORMULAS, *GATED])
def test_the_network_is_its_formula(activation):
    network = build(activation=activation).encoder[0].feed_forward
    x = torch.randn(2, 3, 24, dtype=torch.float64)
    inner = x @ network.w_1.weight.T + network.w_1.bias
    if activation in GATED:
        inner = GATED[activation](inner) * (x @ network.w_gate.weight.T + network.w_gate.bias)
    else:
        inner = FORMULAS[activation](inner)
    assert torch.allclose(network(x), inner @ network.w_2.weight.T + network.w_2.bias)
