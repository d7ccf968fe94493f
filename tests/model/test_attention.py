"""§3.2: Equation 1, and every kernel against it."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.model.conftest import build
from transduce.config import ModelConfig
from transduce.model import Tokens, attention, attention_weights, kernels
from transduce.model.kernels import Places, build_mask, choose

PACKED = Tokens.packed([[[1] * 5, [1] * 3, [1] * 9], [[1] * 11, [1] * 2]], pad=30)
PADDED = Tokens.padded([[1] * 5, [1] * 3, [1] * 17, [1] * 1], pad=30)


def heads(batch, length, size, seed):
    return torch.randn(batch, 2, length, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_attention_is_equation_1_term_by_term():
    q, k, v = (heads(1, 3, 4, seed) for seed in range(3))
    expected = torch.zeros_like(v)
    for head in range(2):
        for i in range(3):
            terms = [math.exp(float(q[0, head, i] @ k[0, head, j]) / math.sqrt(4)) for j in range(3)]
            for j in range(3):
                expected[0, head, i] += terms[j] / sum(terms) * v[0, head, j]
    assert torch.allclose(attention(q, k, v), expected)


def test_weights_are_a_distribution_over_what_may_be_attended():
    places = Places(PACKED.segments, PACKED.positions)
    mask = build_mask("written-out", places, places, causal=True).allowed
    weights = attention_weights(heads(2, 17, 4, 0), heads(2, 17, 4, 1), mask)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 17, dtype=torch.float64))
    assert (weights[~mask.expand_as(weights)] == 0).all()


def test_a_mask_allows_the_sentence_itself_and_no_later_key():
    segments = torch.tensor([[0, 0, 0, 1, 1, 9]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0]])
    mask = build_mask("written-out", *[Places(segments, positions)] * 2, causal=True).allowed[0, 0].int().tolist()
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
    places = Places(torch.zeros(1, 8, dtype=torch.int32), torch.arange(8).unsqueeze(0))
    mask = build_mask("written-out", places, places, causal=False, r=r).allowed[0, 0]
    distance = (torch.arange(8)[:, None] - torch.arange(8)[None, :]).abs()
    assert torch.equal(mask, distance <= reach)


@pytest.mark.parametrize("tokens", [PACKED, PADDED], ids=["packed", "padded"])
@pytest.mark.parametrize(("causal", "r"), [(False, None), (True, None), (True, 4)])
def test_sdpa_equals_equation_1(tokens, causal, r):
    places = Places(tokens.segments, tokens.positions)
    inputs = [heads(tokens.ids.size(0), tokens.ids.size(1), size, seed) for seed, size in enumerate((8, 8, 4))]
    masks = [build_mask(kernel, places, places, causal=causal, r=r) for kernel in ("written-out", "sdpa")]
    assert torch.allclose(masks[0].attend(*inputs), masks[1].attend(*inputs))
    for tensor in inputs:
        tensor.requires_grad_()
    gradients = [torch.autograd.grad(mask.attend(*inputs).square().sum(), inputs) for mask in masks]
    for ours, expected in zip(*gradients, strict=True):
        assert torch.allclose(ours, expected)


@pytest.mark.parametrize("kernel", ["written-out", "sdpa"])
def test_the_kernel_that_is_named_is_the_one_that_runs(kernel, monkeypatch):
    monkeypatch.setattr(kernels, "attention", lambda *_: "written-out")
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda *_: "sdpa")
    places = Places(PACKED.segments, PACKED.positions)
    mask = build_mask(choose(ModelConfig(kernel=kernel), PACKED.ids), places, places, causal=True)
    assert mask.attend(*[heads(2, 17, 4, 0)] * 3) == kernel


@pytest.mark.parametrize(
    ("cuda", "length", "settings", "ascending", "expected"),
    [
        (True, 16, {}, True, "varlen"),
        (True, 15, {}, True, "sdpa"),  # single steps
        (True, 128, {"d_v": 48}, True, "sdpa"),  # sizes that the kernel does not take
        (True, 128, {"d_k": 8}, True, "sdpa"),
        (True, 128, {"d_v": 256}, True, "sdpa"),
        (True, 128, {"p_drop_attention": 0.1}, True, "sdpa"),
        (True, 128, {}, False, "sdpa"),  # a cache may hold padding between two chunks
        (False, 128, {}, True, "sdpa"),
    ],
)
def test_varlen_is_chosen_on_cuda_where_it_can_and_pays(cuda, length, settings, ascending, expected):
    queries = SimpleNamespace(is_cuda=cuda, size=(1, length).__getitem__)
    assert choose(ModelConfig(**settings), queries, ascending=ascending) == expected


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
    lonely = replace(target, segments=torch.full_like(target.segments, 77))  # nobody in the source to attend to
    logits = model(source, lonely)
    assert torch.isfinite(logits).all()
    logits.sum().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())
