"""The rivals of Table 2 follow the protocol of models: they train, search and never see the future."""

import math

import pytest
import torch
import torch.nn.functional as F

from transduce.config import ModelConfig, SearchConfig
from transduce.engines.torch import TorchEngine
from transduce.model import Tokens
from transduce.paper.baselines import convolutional
from transduce.paper.baselines.convolutional import ConvolutionalModel
from transduce.paper.baselines.recurrent import RecurrentModel

V = 17
EOS, PAD = 0, V - 1
KINDS = pytest.mark.parametrize("kind", [RecurrentModel, ConvolutionalModel])


def build(kind, **changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "N": 2, "d_model": 24, "p_drop": 0.0}
    return kind(ModelConfig(**{**sizes, **changes})).eval()


def ids(rows, length):
    return torch.randint(2, PAD, (rows, length))


@KINDS
def test_the_future_never_leaks(kind):
    model = build(kind, N=3)
    source, target = ids(2, 6), ids(2, 9)
    changed = target.clone()
    changed[:, 5:] = 3
    with torch.no_grad():
        before, after = (
            model.decode(tokens, model.encode(source))[0] for tokens in (target, changed)
        )
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert (before[:, 5:] - after[:, 5:]).abs().max() > 1e-4


@KINDS
def test_every_source_token_reaches_every_position(kind):
    model = build(kind, N=3)
    x = torch.zeros(1, 7, 24)

    class Given(torch.nn.Module):
        pad = PAD

        def forward(self, _):
            return given

    given = torch.randn_like(x).requires_grad_()
    model.source_embedding = Given()
    logits, _ = model.decode(ids(1, 4), model.encode(ids(1, 7)))
    for position in range(4):
        weights = torch.randn(V)
        (gradient,) = torch.autograd.grad(
            (logits[0, position] * weights).sum(), given, retain_graph=True
        )
        assert (gradient[0].abs().amax(-1) > 0).all()


@KINDS
def test_decoding_in_steps_is_decoding_at_once(kind):
    model = build(kind, N=3)
    source, target = ids(3, 5), ids(3, 8)
    with torch.no_grad():
        expected, _ = model.decode(target, model.encode(source))
        state = model.encode(source)
        parts = []
        for chunk in target.split([1, 1, 4, 2], dim=1):
            logits, state = model.decode(chunk, state)
            parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected)


@KINDS
def test_selected_rows_go_on_as_if_they_were_alone(kind):
    model = build(kind)
    source, target = ids(3, 5), ids(3, 6)
    rows = torch.tensor([2, 0, 2])
    with torch.no_grad():
        _, state = model.decode(target[:, :4], model.encode(source))
        found, _ = model.decode(target[rows, 4:], state.select(rows))
        expected, _ = model.decode(target, model.encode(source))
    torch.testing.assert_close(found, expected[rows, 4:])


@KINDS
def test_padding_changes_nothing(kind):
    model = build(kind, N=3)
    short, long = ids(1, 4)[0].tolist(), ids(1, 9)[0].tolist()
    target = ids(1, 5)
    with torch.no_grad():
        alone, _ = model.decode(target, model.encode(Tokens.padded([short], PAD)))
        beside, _ = model.decode(
            target.expand(2, -1), model.encode(Tokens.padded([short, long], PAD))
        )
    torch.testing.assert_close(beside[:1], alone)


@KINDS
def test_a_copy_task_is_learned_and_searched(kind):
    model = build(kind, N=1, d_model=48).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):
        tokens = ids(32, 4)
        labels = torch.cat([tokens, torch.full((32, 1), EOS)], 1)
        inputs = torch.cat([torch.full((32, 1), PAD), tokens], 1)
        logits, _ = model.decode(inputs, model.encode(labels))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    sources = [[*row, EOS] for row in ids(10, 4).tolist()]
    found = TorchEngine(model).search(sources, SearchConfig(beam_size=2))
    copied = sum(
        list(best.ids) == source[:-1] for (best, *_), source in zip(found, sources, strict=True)
    )
    assert copied >= 9


@KINDS
def test_a_new_rival_guesses_evenly(kind):
    """A loss far above ln V at first means scores so large that no gradient gets through them."""
    model = build(kind, vocab_size=500, N=6, d_model=256)
    source, target = torch.randint(2, 499, (8, 15)), torch.randint(2, 499, (8, 15))
    logits, _ = model.decode(target, model.encode(source))
    loss = F.cross_entropy(logits.flatten(0, 1), torch.randint(2, 499, (8 * 15,)))
    assert float(loss.detach()) == pytest.approx(math.log(500), rel=0.05)


def test_attention_of_the_convolutional_rival_is_equation_1():
    """Without the scale, or with a factor that grows with the source, it diverges in training."""
    torch.manual_seed(0)
    attention = convolutional.Attention(64)
    x, embedded = torch.randn(2, 5, 64), torch.randn(2, 5, 64)
    keys, values = torch.randn(2, 9, 64), torch.randn(2, 9, 64)
    allowed = torch.arange(9) < torch.tensor([[9], [4]])
    state = convolutional.ConvolutionalState(keys, values, allowed, 0, ())
    queries = (attention.w_q(x) + embedded) / math.sqrt(2)
    found = F.scaled_dot_product_attention(queries, keys, values, allowed.unsqueeze(1))
    torch.testing.assert_close(attention(x, embedded, state), attention.w_o(found))
