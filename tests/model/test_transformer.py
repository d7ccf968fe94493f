"""Figure 1: what must not change the output, and what must."""

import math
import typing

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.model.conftest import SMALL, SOURCES, TARGETS, build
from transduce.config import ModelConfig, Positions
from transduce.errors import InputError
from transduce.model import PADDING_SEGMENT, State, Tokens, Transformer
from transduce.model.embedding import Embedding
from transduce.model.positions import sinusoids


def logits_of_each(model, sources, targets):
    """Every pair alone: no padding, no neighbours."""
    pad = model.config.pad
    for source, target in zip(sources, targets, strict=True):
        yield model(Tokens.padded([source], pad), Tokens.padded([target], pad).shifted_right(pad))[
            0
        ]


def test_padding_and_batch_mates_change_nothing(model):
    pad = model.config.pad
    source, target = Tokens.padded(SOURCES, pad), Tokens.padded(TARGETS, pad).shifted_right(pad)
    together = model(source, target)
    for row, alone in enumerate(logits_of_each(model, SOURCES, TARGETS)):
        assert torch.allclose(together[row, : len(TARGETS[row])], alone)


def test_packing_changes_nothing(model):
    pad = model.config.pad
    source = Tokens.packed([SOURCES[:3], SOURCES[3:]], pad, width=20)
    target = Tokens.packed([TARGETS[:3], TARGETS[3:]], pad, width=23).shifted_right(pad)
    packed = model(source, target)
    alone = list(logits_of_each(model, SOURCES, TARGETS))
    assert torch.allclose(packed[0, : sum(map(len, TARGETS[:3]))], torch.cat(alone[:3]))
    assert torch.allclose(packed[1, : len(TARGETS[3])], alone[3])


def test_half_precision_changes_little(model, pair):
    exact = model(*pair)
    half = model.bfloat16()(*pair)
    assert half.dtype == torch.bfloat16
    assert (half - exact).abs().mean() < 0.05 * exact.abs().mean()


def test_future_never_leaks(model):
    pad = model.config.pad
    source = Tokens.padded(SOURCES[1:2], pad)
    target = Tokens.padded(TARGETS[1:2], pad).shifted_right(pad)
    before = model(source, target)
    for place in range(1, target.ids.size(1)):
        changed = target.ids.clone()
        changed[0, place] = 25
        after = model(source, Tokens(changed, target.positions, target.segments))
        assert torch.equal(after[:, :place], before[:, :place])
        assert not torch.allclose(after[:, place], before[:, place])


def changes(model, side, place):
    """Return the positions of memory and logits that change with one token of the source or target."""
    pad = model.config.pad
    results = []
    for token in (3, 27):
        source, target = list(SOURCES[1]), [pad, *TARGETS[1][:-1]]
        (source if side == "source" else target)[place] = token
        state = model.encode(Tokens.padded([source], pad))
        results.append((state.memory[0], model.decode(Tokens.padded([target], pad), state)[0][0]))
    return [(before - after).abs().amax(-1) > 1e-9 for before, after in zip(*results, strict=True)]


@pytest.mark.parametrize("place", range(len(SOURCES[1])))
def test_every_source_token_reaches_every_position(paper_model, place):
    memory, logits = changes(paper_model, "source", place)
    assert memory.all()
    assert logits.all()


@pytest.mark.parametrize("place", range(len(SOURCES[1])))
def test_a_neighbourhood_restricts_self_attention_alone(place):
    one_layer = build(N=1, r=3)
    memory, logits = changes(one_layer, "source", place)
    assert memory.nonzero().flatten().tolist() == [
        near for near in range(7) if abs(near - place) <= 1
    ]
    assert logits.all()
    _, logits = changes(one_layer, "target", place)
    assert logits.nonzero().flatten().tolist() == [place, place + 1]


@pytest.mark.parametrize("chunks", [(1,) * 9, (4, 5), (1, 8), (2, 1, 3, 3)], ids=str)
def test_decoding_in_chunks_equals_decoding_at_once(model, chunks):
    pad = model.config.pad
    source = Tokens.padded(SOURCES, pad)
    target = Tokens.padded(TARGETS, pad).shifted_right(pad)
    state = model.encode(source)
    whole = model.decode(target, state)[0]
    parts, start = [], 0
    for size in chunks:
        logits, state = model.decode(target[start : start + size], state)
        parts.append(logits)
        start += size
    real = Tokens.padded(TARGETS, pad).ids != pad
    assert torch.allclose(torch.cat(parts, dim=1)[real], whole[real])


def test_packed_rows_decode_in_chunks_too(model):
    pad = model.config.pad
    source = Tokens.packed([SOURCES], pad)
    target = Tokens.packed([TARGETS], pad).shifted_right(pad)
    state = model.encode(source)
    whole = model.decode(target, state)[0]
    first, state = model.decode(target[:7], state)
    second, _ = model.decode(target[7:], state)
    assert torch.allclose(torch.cat([first, second], dim=1), whole)


def test_following_tokens_stand_after_the_decoded_ones(model):
    pad = model.config.pad
    prefix = [15, 4, 9, 22]
    state = model.encode(Tokens.padded(SOURCES[:1], pad))
    whole = model.decode(Tokens.padded([prefix], pad), state)[0]
    for place, token in enumerate(prefix):
        logits, state = model.decode(torch.tensor([[token]]), state)
        assert torch.allclose(logits[:, 0], whole[:, place])


def test_a_state_can_be_reordered_and_repeated(model):
    pad = model.config.pad
    rows = torch.tensor([2, 0, 0])
    source = Tokens.packed([SOURCES[:2], SOURCES[2:], SOURCES[1:3]], pad)
    target = Tokens.packed([TARGETS[:2], TARGETS[2:], TARGETS[1:3]], pad).shifted_right(pad)
    picked = Tokens(target.ids[rows], target.positions[rows], target.segments[rows])
    state = model.encode(source)
    expected, later = model.decode(target, state)[0][rows], model.decode(target[:4], state)[1]
    real = picked.segments != PADDING_SEGMENT
    assert torch.allclose(model.decode(picked, state.select(rows))[0][real], expected[real])
    assert torch.allclose(
        model.decode(picked[4:], later.select(rows))[0][real[:, 4:]], expected[:, 4:][real[:, 4:]]
    )


def test_the_source_is_projected_once(model, pair):
    source, target = pair
    _, state = model.decode(target[:1], model.encode(source))
    gone = State(state.memory * math.nan, state.source, state.layers, state.target)
    assert torch.equal(model.decode(target[1:], gone)[0], model.decode(target[1:], state)[0])


def test_padding_comes_last_however_many_sentences_a_row_holds():
    segments = Tokens.packed([[[5]] * 100], 30, width=110).segments[0].tolist()
    assert segments == [*range(100), *[PADDING_SEGMENT] * 10] == sorted(segments)


def test_tokens_move_to_a_device_whole():
    moved = Tokens.padded(SOURCES, 30).to("meta")
    assert {moved.ids.device.type, moved.positions.device.type, moved.segments.device.type} == {
        "meta"
    }


def test_a_target_starts_from_padding():
    tokens = Tokens.packed([[[4, 5, 0], [6, 0]]], pad=9, width=7)
    assert tokens.shifted_right(9).ids.tolist() == [[9, 4, 5, 9, 6, 9, 9]]


@pytest.mark.parametrize("positions", typing.get_args(Positions))
def test_the_first_word_attends_to_source_words_in_any_model(positions, pair):
    model = build(norm_order="pre", norm="rms", positions=positions, max_positions=40)
    queries = []
    model.decoder[0].cross_attention.w_q.register_forward_hook(
        lambda _module, _inputs, output: queries.append(output)
    )
    model(*pair)
    assert queries[0][0, 0].abs().max() > 0.1
    # The start is the authors' where there is another choice.
    start = model.target_embedding(torch.tensor([model.config.pad]))
    assert (start == 0).all() == (positions in {"sinusoidal", "learned"})


def test_gradients_are_right():
    model = build(N=1, d_model=6, d_ff=5, h=2, d_k=2, d_v=3, vocab_size=9)
    source, target = (
        Tokens.packed([[[3, 4, 0], [5, 0]]], 8),
        Tokens.packed([[[6, 0], [2, 3, 0]]], 8).shifted_right(8),
    )
    parameters = dict(model.named_parameters())
    # Padding is no parameter.
    parameters["target_embedding.weight"] = parameters["target_embedding.weight"][:8]

    def function(*values):
        weights = dict(zip(parameters, values, strict=True))
        weights["target_embedding.weight"] = F.pad(weights["target_embedding.weight"], (0, 0, 0, 1))
        return torch.func.functional_call(model, weights, (source, target)).tanh().sum(-1)

    inputs = [value.detach().clone().requires_grad_() for value in parameters.values()]
    assert torch.autograd.gradcheck(function, inputs)


def test_every_parameter_learns(model, pair):
    model(*pair).square().sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_the_shared_matrix_learns_from_both_ends():
    model = build()
    pad = model.config.pad
    # Token 20 is read by the decoder only, 21 by the encoder only, 22 by nobody: the softmax alone reaches it.
    logits = model(Tokens.padded([[21, 0]], pad), Tokens.padded([[pad, 20]], pad))
    F.cross_entropy(logits[0, -1:], torch.tensor([3])).backward()
    gradient = model.target_embedding.weight.grad
    assert (
        len(
            [
                name
                for name, _ in model.named_parameters()
                if "embedding" in name or "output" in name
            ]
        )
        == 1
    )
    from_softmax = gradient[22].norm()
    assert from_softmax > 0
    alone = torch.autograd.grad(F.cross_entropy(F.linear(model.decode_hidden(
        Tokens.padded([[pad, 20]], pad), model.encode(Tokens.padded([[21, 0]], pad)))[0][0, -1:],
        model.output_weight.detach()), torch.tensor([3])), model.target_embedding.weight)[0]  # fmt: skip
    assert alone[20].norm() > 0
    assert alone[21].norm() > 0
    assert alone[22].norm() == 0


@pytest.mark.parametrize(("sharing", "matrices"), [("three-way", 1), ("two-way", 2), ("none", 3)])
def test_sharing_says_how_many_matrices_there_are(sharing, matrices):
    model = build(sharing=sharing)
    sizes = [weight for weight in model.parameters() if weight.size(0) == 31]
    assert len(sizes) == matrices
    pad = model.config.pad
    F.cross_entropy(
        model(Tokens.padded([[5, 0]], pad), Tokens.padded([[pad]], pad))[0], torch.tensor([3])
    ).backward()
    assert all(weight.grad is not None for weight in sizes)


@torch.no_grad()
def test_embeddings_have_unit_variance_and_logits_start_small():
    torch.manual_seed(0)
    model = Transformer(
        ModelConfig(vocab_size=2000, N=2, d_model=128, d_ff=256, h=4, d_k=32, d_v=32)
    ).eval()
    ids = torch.randint(0, 1999, (8, 30))
    assert float(model.target_embedding(ids).var()) == pytest.approx(1.0, abs=0.05)
    source = Tokens.padded(ids.tolist(), 1999)
    logits = model(source, source.shifted_right(1999))
    assert float(logits.std()) == pytest.approx(1.0, abs=0.2)
    assert float(F.cross_entropy(logits.flatten(0, 1), ids.flatten())) == pytest.approx(
        math.log(2000) + 0.5, abs=0.3
    )


def test_every_parameter_starts_as_stated():
    torch.manual_seed(0)
    free = {"sharing": "none", "positions": "learned", "output_bias": True, "attention_bias": True}
    model = Transformer(
        ModelConfig(vocab_size=2000, N=1, d_model=128, d_ff=256, h=4, d_k=32, d_v=32, **free)
    )
    for embedding in (
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.output_weight,
    ):
        assert float(embedding.detach().var()) == pytest.approx(1 / 128, rel=0.05)
        assert (embedding[model.config.pad] == 0).all()
    # Of sines and cosines.
    assert float(model.source_positions.table.detach().var()) == pytest.approx(0.5, rel=0.05)
    xavier = math.sqrt(6 / (128 + 256))
    assert float(model.encoder[0].feed_forward.w_1.weight.abs().max().detach()) == pytest.approx(
        xavier, rel=0.01
    )
    biases = [weight for name, weight in model.named_parameters() if "bias" in name]
    assert len(biases) == 1 + (4 + 2 + 2) + (8 + 2 + 3)  # output, encoder layer, decoder layer
    assert all((bias == 0).all() for bias in biases)


@torch.no_grad()
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_both_stacks_end_in_a_norm(norm_order, pair):
    torch.manual_seed(0)
    model = Transformer(ModelConfig(**SMALL, norm_order=norm_order))
    state = model.encode(pair[0])
    for output in (state.memory, model.decode_hidden(pair[1], state)[0]):
        assert torch.allclose(output.mean(-1), torch.tensor(0.0), atol=1e-5)
        assert torch.allclose(output.var(-1, correction=0), torch.tensor(1.0), atol=1e-3)


def test_embeddings_are_scaled_by_the_root_of_d_model():
    embedding = Embedding(11, 16)
    torch.nn.init.ones_(embedding.weight)
    assert (embedding(torch.tensor([3])) == 4.0).all()


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_dropout_falls_on_sums_of_embeddings_and_on_sublayer_outputs_before_the_addition(
    norm_order, monkeypatch
):
    """With everything dropped, every residual connection passes its input on, normed in post-norm order."""
    model, dropped = build(p_drop=0.9, norm_order=norm_order).train(), []
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: dropped.append((x, self.p)) or x * 0)
    x = torch.randn(1, 3, 24, dtype=torch.float64)
    residual = model.encoder[0].self_attention_residual
    assert torch.equal(
        residual(x, torch.randn_like), x if norm_order == "pre" else residual.norm(x)
    )

    def at_p_drop():
        inputs = [x for x, p in dropped if p == 0.9]
        dropped.clear()
        return inputs

    at_p_drop()
    source, target = Tokens.padded(SOURCES[:1], 30), Tokens.padded([[30, 4]], 30)
    state = model.encode(source)
    embedded, *outputs = at_p_drop()
    assert torch.equal(
        embedded, model.target_embedding(source.ids) + sinusoids(source.positions, 24)
    )
    assert len(outputs) == 2 * 2  # two sub-layers in two layers
    model.decode(target, state)
    embedded, *outputs = at_p_drop()
    assert torch.equal(
        embedded, model.target_embedding(target.ids) + sinusoids(target.positions, 24)
    )
    assert len(outputs) == 3 * 2


def test_activation_dropout_is_its_own_setting(pair):
    model = build(p_drop_activation=0.5).train()
    assert not torch.equal(model(*pair), model(*pair))


@pytest.mark.parametrize(
    ("changes", "source", "target", "message"),
    [
        (
            {},
            [[5, 31]],
            [[30, 4]],
            "found token ids from 5 to 31; a vocabulary of 31 allows 0 to 30",
        ),
        (
            {},
            [[5, -1]],
            [[30, 4]],
            "found token ids from -1 to 5; a vocabulary of 31 allows 0 to 30",
        ),
        (
            {"source_vocab_size": 20, "sharing": "two-way"},
            [[5, 20]],
            [[30, 4]],
            "found token ids from 5 to 20; a vocabulary of 20 allows 0 to 19",
        ),
        (
            {},
            [[5, 6]],
            [[30, 99]],
            "found token ids from 30 to 99; a vocabulary of 31 allows 0 to 30",
        ),
        ({"positions": "learned", "max_positions": 3}, [[5] * 4], [[30]], "max_positions = 3"),
        (
            {"positions": "learned", "max_positions": 3},
            [[5]],
            [[30] * 5],
            "found a sequence of 5 tokens",
        ),
    ],
)
def test_tokens_that_the_model_cannot_take_are_refused(changes, source, target, message):
    with pytest.raises(InputError, match=message):
        build(**changes)(Tokens.padded(source, 30), Tokens.padded(target, 30))


@pytest.mark.parametrize(
    ("positions", "length"), [("learned", 3), ("sinusoidal", 9), ("rotary", 9), ("none", 9)]
)
def test_learned_positions_reach_to_their_last_row_and_the_others_on(positions, length):
    model = build(positions=positions, max_positions=3)
    assert model(*[Tokens.padded([[5] * length], 30)] * 2).shape == (1, length, 31)


def test_empty_sequences_are_refused():
    with pytest.raises(InputError, match="empty sequence"):
        Tokens.padded([[5, 0], []], 30)
    with pytest.raises(InputError, match="empty sequence"):
        Tokens.padded([], 30)
    with pytest.raises(InputError, match="empty sequence"):
        Tokens.packed([[[5, 0], []]], 30)
    with pytest.raises(InputError, match="at least one sequence"):
        build().encode(Tokens(*[torch.zeros(1, 0, dtype=torch.int32)] * 3))
    with pytest.raises(InputError, match="more than its width"):
        Tokens.packed([[[5, 0], [4, 0]]], 30, width=3)


def test_a_state_stays_as_it_was(model):
    """A state is a value: decoding from it twice gives the same result twice."""
    pad = model.config.pad
    state = model.decode(
        torch.tensor([[pad, 4, 9]]), model.encode(Tokens.padded(SOURCES[:1], pad))
    )[1]
    first, second = (model.decode(torch.tensor([[token]]), state)[0] for token in (7, 7))
    assert torch.equal(first, second)


def test_plain_ids_are_sentences_padded_at_their_end(model):
    pad, source_pad = model.config.pad, model.config.source_pad
    source, target = (
        Tokens.padded(SOURCES, source_pad),
        Tokens.padded(TARGETS, pad).shifted_right(pad),
    )
    real = Tokens.padded(TARGETS, pad).ids != pad
    assert torch.allclose(model(source.ids, target.ids)[real], model(source, target)[real])


@pytest.mark.parametrize(
    "ids", [torch.tensor([5, 6]), torch.zeros(1, 2, 3, dtype=torch.int32), torch.zeros(1, 2)]
)
def test_what_is_not_token_ids_is_refused(paper_model, ids):
    with pytest.raises(InputError, match=r"expected token ids of shape \(rows, tokens\)"):
        paper_model(ids, ids)


def test_modules_say_what_they_are(paper_model):
    text = repr(paper_model)
    for words in (
        "21,256 parameters",
        "V=31, d_model=24",
        "h=3, d_k=8, d_v=6",
        "post-norm",
        "sinusoidal",
        "relu",
    ):
        assert words in text
