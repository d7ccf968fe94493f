"""§3.1: both norms, written out."""

import torch

from tests.model.conftest import build

X = torch.randn(2, 3, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def norm_of(**changes):
    return build(norm_eps=0.1, **changes).encoder[0].feed_forward_residual.norm


def test_layer_norm_is_its_formula():
    norm = norm_of(norm="layer")
    centred = X - X.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 0.1).sqrt()
    assert torch.allclose(norm(X), centred / deviation * norm.weight + norm.bias)


def test_rms_norm_is_its_formula():
    norm = norm_of(norm="rms")
    assert torch.allclose(
        norm(X), X / (X.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight
    )
