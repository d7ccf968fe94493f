"""A fused form never hides a user's change. The kernels run in Triton's interpreter."""

import copy

import pytest
import torch
from torch import nn

from tests.changes import CHANGES, MODERN, SOURCES, V, batch, build
from transduce.config import SearchConfig
from transduce.engines.buffers import buffered
from transduce.engines.torch import TorchEngine
from transduce.kernels.accelerate import Snapshot, accelerate, deviation, restore
from transduce.model import Tokens
from transduce.training.step import Learner

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = {"paper": {}, "modern": MODERN}
SEARCH = SearchConfig(beam_size=2, max_length=8)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def shape(request):
    return request.param


def loss_sums(model):
    """The two sums of a training step, without its gradients: the interpreter takes its time."""
    with torch.no_grad():
        return Learner(model.train().to(DEVICE), 0.1)(*(side.to(DEVICE) for side in batch()))


def losses(model):
    """The two sums of a training step and all gradients."""
    learner = Learner(model.train().to(DEVICE), 0.1)
    sums = learner(*(side.to(DEVICE) for side in batch()))
    sums[0].backward()
    gradients = {
        name: weight.grad for name, weight in learner.named_parameters() if weight.grad is not None
    }
    learner.zero_grad()
    return sums.detach(), gradients


def ids(engine):
    return [ids_of(hypotheses) for hypotheses in engine.search(SOURCES, SEARCH)]


def ids_of(hypotheses):
    return [hypothesis.ids for hypothesis in hypotheses]


SOME = ("subclassed attention", "wrapped linear", "own norm", "hook on a layer", "own activation")
CASES = {name: (change, {}) for name, change in CHANGES.items()}
CASES |= {f"{name}, modern": (CHANGES[name], MODERN) for name in SOME}


# Hooks of one kind are alike, so the default run has one of each; tests/gpu has all.
SLOW = (
    "wrapped linear of the decoder",
    "hook before feed-forward",
    "hook on a norm",
    "hook on an embedding",
    "hook on a linear layer",
    "hook on a joined linear layer",
    "own norm, modern",
    "hook on a layer, modern",
)
TRAINING_CASES = [
    pytest.param(*case, marks=[pytest.mark.slow] if name in SLOW else [], id=name)
    for name, case in CASES.items()
]


@pytest.mark.parametrize(("change", "shape"), TRAINING_CASES)
def test_what_is_changed_counts_in_training_and_the_rest_stays_fused(change, shape):
    """The gradients of all cases are compared in tests/gpu."""
    plain, model, untouched = (build(**shape, N_decoder=1) for _ in range(3))
    change(plain)
    change(model)
    acceleration = accelerate(model, "cuda")
    assert sum(acceleration.fused.values()) > 0  # the rest
    expected = loss_sums(plain)
    torch.testing.assert_close(loss_sums(model), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(expected, loss_sums(untouched), rtol=1e-3)


@pytest.mark.parametrize("name", ["own residual", "own norm"])
def test_gradients_pass_between_changed_parts_and_fused_ones(name):
    plain, model = build(), build()
    CHANGES[name](plain)
    CHANGES[name](model)
    accelerate(model, "cuda")
    assert_same_gradients(losses(plain)[1], losses(model)[1])


def assert_same_gradients(expected, found):
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def wrap(part, method):
    """Replace a method of one object by a quarter of what it returns."""
    inner = getattr(part, method)
    setattr(part, method, lambda *given: 0.25 * inner(*given))


def test_a_method_that_was_wrapped_while_it_was_fused_still_works(shape):
    """A user may take a bound method of a fused form and wrap it."""
    plain, model = build(**shape), build(**shape)
    accelerate(model, "cuda")
    for transformer in (plain, model):
        for layer in transformer.encoder:
            for part, method in ((layer.self_attention, "attend"), (layer.feed_forward, "forward")):
                wrap(part, method)
            wrap(layer.feed_forward_residual, "forward")
        wrap(transformer.encoder_norm, "forward")
    accelerate(model, "cuda")
    torch.testing.assert_close(loss_sums(model), loss_sums(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("frozen", [False, True], ids=["as it is", "frozen"])
@pytest.mark.parametrize(("change", "shape"), CASES.values(), ids=CASES.keys())
def test_what_is_changed_counts_in_a_search(change, shape, frozen):
    model, untouched = build(**shape).requires_grad_(False), build(**shape).requires_grad_(False)
    change(model)
    with torch.inference_mode():
        expected = [ids_of(hypotheses) for hypotheses in searched_by_hand(model)]
    assert ids(TorchEngine(model, frozen=frozen)) == expected
    assert ids(TorchEngine(untouched)) != expected


def searched_by_hand(model):
    """Search one sentence at a time, by `encode` and `decode` alone."""
    from transduce.engines.model_calls import log_probabilities
    from transduce.search.search import search

    def step(tokens, state):
        logits, state = model.decode(tokens[:, None], state)
        return log_probabilities(logits[:, 0]), state

    for source in SOURCES:
        state = model.encode(torch.tensor([source]))
        yield from search(step, state, [SEARCH.limit(len(source))], V - 1, SEARCH)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_between_two_searches_is_seen(change):
    model, changed = build(), build()
    engine = TorchEngine(model, frozen=True)
    before = ids(engine)
    change(model)
    change(changed)
    assert ids(engine) == ids(TorchEngine(changed)) != before


@pytest.mark.parametrize(("change", "shape"), CASES.values(), ids=CASES.keys())
def test_no_graph_is_made_of_a_model_that_is_changed(change, shape):
    model = build(**shape)
    assert deviation(model) is None
    accelerate(model, "cuda")
    assert deviation(model) is None
    snapshot = Snapshot(model)
    assert snapshot.holds()
    change(model)
    assert deviation(model)
    accelerate(model, "cuda")
    assert deviation(model)
    assert not snapshot.holds() or change is CHANGES["own activation"]


@pytest.mark.parametrize("frozen", [False, True])
def test_recording_attention_changes_no_bit(shape, frozen):
    """On every path: as written, with packed matrices, and by the fused kernels."""
    model, maps = build(**shape).requires_grad_(False), []

    def record(attention, inputs):
        maps.append(attention.weights(*inputs[:4]))

    def outputs():
        source, target = batch()
        logits = model(source.to(DEVICE), target.shifted_right(V - 1).to(DEVICE))
        return logits, TorchEngine(model, frozen=frozen).search(SOURCES, SEARCH)

    def assert_unchanged():
        logits, hypotheses = outputs()
        hooks = [
            part.register_forward_pre_hook(record)
            for layer in (*model.encoder, *model.decoder)
            for name, part in layer.named_children()
            if name.endswith("attention")
        ]
        recorded_logits, recorded_hypotheses = outputs()
        for hook in hooks:
            hook.remove()
        assert torch.equal(recorded_logits, logits)
        assert recorded_hypotheses == hypotheses

    assert_unchanged()
    assert {tuple(weights.shape[:2]) for weights in maps} >= {(1, 2)}
    if not frozen:
        model.to(DEVICE)
        accelerate(model, "cuda")
        assert_unchanged()


def test_hooks_fire_in_training_validation_and_search():
    model, seen = build(), []
    for name, module in model.named_modules():
        if name and not isinstance(module, nn.ModuleList):
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    called = {
        name
        for name, module in model.named_modules()
        if name and not isinstance(module, nn.ModuleList)
    }
    accelerate(model, "cuda")
    losses(model)
    assert set(seen) == called
    seen.clear()
    TorchEngine(model.eval().cpu(), frozen=True).search(SOURCES, SEARCH)
    assert set(seen) == called


def test_the_report_says_what_is_fused_and_what_is_not_and_why():
    model = build(N=2)
    assert (
        str(accelerate(model, "cuda"))
        == "fused: embedding x 1, attention x 6, residual x 10, feed-forward x 4"
    )
    CHANGES["wrapped linear"](model)
    model.decoder[1].register_forward_hook(lambda *_: None)
    line = str(accelerate(model, "cuda"))
    assert line.startswith("fused: embedding x 1, attention x 2, residual x 10, feed-forward x 4; ")
    assert "encoder.0.self_attention and 3 more (w_q: its class is LoRA)" in line
    assert str(accelerate(model, "cpu")).startswith("fused: dropout x ")


@pytest.mark.parametrize(
    ("changes", "packs"),
    [
        ({}, True),
        ({"kernel": "sdpa"}, False),
        ({"d_k": 8}, False),
        ({"p_drop_attention": 0.1}, False),
    ],
)
def test_rows_of_many_sentences_are_cheap_only_in_tiles(changes, packs):
    assert accelerate(build(**changes), "cuda").packs == packs
    assert not accelerate(build(**changes), "cpu").packs


def test_a_model_with_an_attention_of_its_own_takes_one_sentence_a_row():
    model = build()
    model.decoder[1].cross_attention = nn.Identity()
    assert not accelerate(model, "cuda").packs


def test_restoring_gives_every_class_back(shape):
    model = build(**shape)
    kinds = [type(module) for module in model.modules()]
    names = list(model.state_dict())
    for device, frozen in (("cuda", False), ("cpu", False), ("cpu", True)):
        accelerate(model, device, frozen=frozen)
        assert [type(module) for module in model.modules()] != kinds
        assert list(model.state_dict()) == names
        restore(model)
        assert [type(module) for module in model.modules()] == kinds


def test_a_copy_of_an_accelerated_model_stands_on_its_own(shape):
    model = build(**shape)
    accelerate(model, "cuda")
    expected = loss_sums(model)
    twin = copy.deepcopy(model)
    for weight in model.parameters():
        weight.data.zero_()
    torch.testing.assert_close(loss_sums(twin), expected)


def test_an_accelerated_model_runs_where_its_kernels_do_not(shape, monkeypatch):
    from transduce.kernels import fused

    model, plain = build(**shape), build(**shape)
    accelerate(model, "cuda")
    monkeypatch.setattr(fused, "runs_on", lambda _: False)
    source, target = batch()
    assert torch.equal(model(source, target), plain(source, target))


def watch_gradient(output):
    output.retain_grad()
    return output


@pytest.mark.parametrize("meddle", ["in place", "another tensor", "its gradient is watched"])
def test_what_is_handed_over_belongs_to_that_very_tensor(shape, meddle):
    """If a hook between two layers changes the input of the next one, no handover is used."""
    changes = {
        "in place": lambda *given: given[2].mul_(2.0),
        "another tensor": lambda *given: given[2] * 2.0,
        "its gradient is watched": lambda *given: watch_gradient(given[2]),
    }
    seen = []
    for fuse in (False, True):
        model = build(N=2, N_decoder=1, **shape).to(DEVICE)
        if fuse:
            accelerate(model, "cuda")
        kept = []

        def hook(*given, kept=kept):
            kept.append(changes[meddle](*given))
            return kept[-1]

        model.encoder[0].register_forward_hook(hook)
        # The hook overwrites a tensor that the backward pass needs: torch raises an error.
        if fuse and shape and meddle == "in place":
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                losses(model)
            return
        sums, gradients = losses(model)
        watched = [output.grad for output in kept if output.retains_grad]
        seen.append([sums, *(gradients[name] for name in sorted(gradients)), *watched])
    for plain, fused in zip(*seen, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-3, atol=1e-3)


def test_a_model_of_shared_layers_is_computed_right(shape):
    plain, model = build(N=2, **shape), build(N=2, **shape)
    for transformer in (plain, model):
        transformer.encoder[1] = transformer.encoder[0]
        transformer.decoder[1] = transformer.decoder[0]
    accelerate(model, "cuda")
    torch.testing.assert_close(loss_sums(model), loss_sums(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("activation", "norm", "norm_order", "positions"),
    [
        ("geglu", "layer", "pre", "rotary"),
        ("swiglu", "rms", "post", "learned"),
        ("gelu", "rms", "pre", "none"),
        ("relu", "layer", "pre", "learned"),
        ("relu", "rms", "post", "rotary"),
    ],
)
def test_every_form_equals_the_plain_model(activation, norm, norm_order, positions):
    changes = {
        "activation": activation, "norm": norm, "norm_order": norm_order, "positions": positions,
        "attention_bias": positions == "learned", "N": 1, "N_decoder": 2,
    }  # fmt: skip
    plain, model = build(**changes), build(**changes)
    for transformer in (plain, model):
        torch.manual_seed(3)
        for weight in transformer.parameters():
            if weight.ndim == 1:
                nn.init.normal_(weight, mean=0.5, std=0.3)
    accelerate(model, "cuda")
    expected, gradients = losses(plain)
    sums, fused = losses(model)
    torch.testing.assert_close(sums, expected, rtol=1e-4, atol=1e-4)
    assert_same_gradients(gradients, fused)


@torch.no_grad()
def test_rows_of_a_search_state_may_be_taken_in_any_order():
    """Hypotheses that move to another row take the memory of their source with them."""
    model, chance = build().double(), torch.Generator().manual_seed(0)
    source = Tokens.padded(SOURCES, V - 1)
    state, plain = buffered(model.encode(source)), model.encode(source)
    for rows in ([0, 0, 1, 1, 2, 2], [5, 0, 0, 3, 3, 2], [1, 4, 2], [2, 2, 2, 0]):
        rows = torch.tensor(rows)
        state, plain = state.select(rows), plain.select(rows)
        tokens = torch.randint(V - 1, (len(rows), 1), generator=chance)
        logits, state = model.decode(tokens, state)
        expected, plain = model.decode(tokens, plain)
        torch.testing.assert_close(logits, expected)
