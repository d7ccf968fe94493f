"""§3.2: Equation 1, and every kernel against it."""

import math
from dataclasses import replace

import pytest
import torch

from tests.model.conftest import build
from transduce.kernels.varlen import takes
from transduce.model import (
    Mask,
    Tokens,
    attention,
    attention_weights,
    multi_head,
    written_out_attention,
)

PACKED = Tokens.packed([[[1] * 5, [1] * 3, [1] * 9], [[1] * 11, [1] * 2]], pad=30)
PADDED = Tokens.padded([[1] * 5, [1] * 3, [1] * 17, [1] * 1], pad=30)


def heads(batch, length, size, seed):
    return torch.randn(
        batch, 2, length, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def test_attention_is_equation_1_term_by_term():
    q, k, v = (heads(1, 3, 4, seed) for seed in range(3))
    expected = torch.zeros_like(v)
    for head in range(2):
        for i in range(3):
            terms = [
                math.exp(float(q[0, head, i] @ k[0, head, j]) / math.sqrt(4)) for j in range(3)
            ]
            for j in range(3):
                expected[0, head, i] += terms[j] / sum(terms) * v[0, head, j]
    assert torch.allclose(attention(q, k, v), expected)
    assert torch.allclose(written_out_attention(q, k, v), expected)


def test_weights_are_a_distribution_over_what_may_be_attended():
    mask = Mask(PACKED, PACKED, causal=True).allowed
    weights = attention_weights(heads(2, 17, 4, 0), heads(2, 17, 4, 1), mask)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 17, dtype=torch.float64))
    assert (weights[~mask.expand_as(weights)] == 0).all()


def test_a_mask_allows_the_sentence_itself_and_no_later_key():
    segments = torch.tensor([[0, 0, 0, 1, 1, 9]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0]])
    tokens = Tokens(positions, positions, segments)
    mask = Mask(tokens, tokens, causal=True).allowed[0, 0].int().tolist()
    assert mask == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]


@pytest.mark.parametrize(("r", "reach"), [(1, 0), (2, 1), (3, 1), (5, 2)])
def test_a_neighbourhood_of_size_r_is_centred_on_the_query(r, reach):
    tokens = Tokens.rows(torch.arange(8).unsqueeze(0))
    mask = Mask(tokens, tokens, r=r).allowed[0, 0]
    distance = (torch.arange(8)[:, None] - torch.arange(8)[None, :]).abs()
    assert torch.equal(mask, distance <= reach)


@pytest.mark.parametrize("tokens", [PACKED, PADDED], ids=["packed", "padded"])
@pytest.mark.parametrize(("causal", "r"), [(False, None), (True, None), (True, 4)])
def test_sdpa_equals_equation_1(tokens, causal, r):
    mask = Mask(tokens, tokens, causal=causal, r=r).allowed
    inputs = [
        heads(tokens.ids.size(0), tokens.ids.size(1), size, seed)
        for seed, size in enumerate((8, 8, 4))
    ]
    assert torch.allclose(attention(*inputs, mask), written_out_attention(*inputs, mask))
    for tensor in inputs:
        tensor.requires_grad_()
    found = [function(*inputs, mask) for function in (attention, written_out_attention)]
    gradients = [torch.autograd.grad(each.square().sum(), inputs) for each in found]
    for ours, expected in zip(*gradients, strict=True):
        assert torch.allclose(ours, expected)


@pytest.mark.parametrize("kernel", ["written-out", "sdpa"])
def test_the_kernel_that_is_named_is_the_one_that_runs(kernel, monkeypatch):
    monkeypatch.setattr(multi_head, "written_out_attention", lambda *_: "written-out")
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda *_: "sdpa")
    layer = build(kernel=kernel).encoder[0].self_attention
    assert layer.attend(*[heads(2, 17, 4, 0)] * 3, Mask(PACKED, PACKED, causal=True)) == kernel


@pytest.mark.parametrize(
    ("length", "settings", "cached", "expected"),
    [
        (16, {}, False, True),
        (15, {}, False, False),  # single steps
        (15, {"kernel": "varlen"}, False, True),
        (128, {"kernel": "sdpa"}, False, False),
        (128, {"d_v": 48}, False, False),  # sizes that the kernel does not take
        (128, {"d_k": 8}, False, False),
        (128, {"d_v": 256}, False, False),
        (128, {"p_drop_attention": 0.1}, False, False),
        (128, {}, True, False),  # a cache may hold padding between two chunks
    ],
)
def test_tiles_are_taken_where_they_can_and_pay(length, settings, cached, expected):
    layer = build(**{"d_k": 16, "d_v": 16, **settings}).decoder[0].self_attention
    mask = Mask(PACKED, PACKED.then(PACKED) if cached else PACKED, causal=True)
    assert takes(layer, mask, length) == expected


def test_a_kernel_changes_nothing(pair):
    logits = [build(kernel=kernel)(*pair) for kernel in ("written-out", "sdpa", "auto")]
    assert torch.allclose(logits[0], logits[1])
    assert torch.allclose(logits[0], logits[2])


def test_attention_dropout_acts_only_in_training(pair):
    for kernel in ("written-out", "sdpa"):
        model = build(kernel=kernel, p_drop_attention=0.5)
        assert torch.equal(model(*pair), model(*pair))
        model.train()
        assert not torch.equal(model(*pair), model(*pair))


@pytest.mark.parametrize("kernel", ["written-out", "sdpa"])
def test_rows_of_padding_never_become_nan(kernel, pair):
    source, target = pair
    model = build(kernel=kernel)
    # Nobody in the source to attend to.
    lonely = replace(target, segments=torch.full_like(target.segments, 77))
    logits = model(source, lonely)
    assert torch.isfinite(logits).all()
    logits.sum().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())
