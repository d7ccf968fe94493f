"""On CUDA: what a researcher changes in a model counts in training, in validation and in search."""

import logging

import pytest
import torch

from tests.changes import CHANGES, MODERN, SOURCES, V, batch, build
from transduce.config import SearchConfig
from transduce.engines.model_calls import teacher_forced
from transduce.engines.torch import TorchEngine
from transduce.kernels.accelerate import accelerate
from transduce.training.step import Learner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SEARCH = SearchConfig(beam_size=2, max_length=8)
CASES = {name: (change, {}) for name, change in CHANGES.items()}
CASES |= {
    f"{name}, modern": (change, MODERN)
    for name, change in CHANGES.items()
    if name != "own positions"
}


def ids(engine):
    results = engine.search(SOURCES, SEARCH)
    return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in results]


def losses(model, device):
    """The sums of a training step, its gradients, and the logits of a validation."""
    learner = Learner(model.to(device).train(), 0.1)
    source, target = (side.to(device) for side in batch())
    sums = learner(source, target)
    sums[0].backward()
    gradients = {
        name: weight.grad.cpu()
        for name, weight in learner.named_parameters()
        if weight.grad is not None
    }
    with torch.no_grad():
        logits = teacher_forced(model.eval(), source, target.shifted_right(V - 1))
    return sums.detach().cpu(), gradients, logits.cpu()


def assert_near(ours, expected, what=""):
    assert float((ours - expected).norm()) <= 2e-3 * float(expected.norm()) + 1e-4, what


@pytest.mark.parametrize(("change", "shape"), CASES.values(), ids=CASES.keys())
def test_what_is_changed_counts(change, shape, caplog):
    plain, model, untouched = build(**shape), build(**shape), build(**shape)
    change(plain)
    change(model)
    expected, gradients, logits = losses(plain, "cpu")
    model.cuda()
    assert sum(accelerate(model).fused.values()) > 0
    found, fused, fused_logits = losses(model, "cuda")
    assert_near(found, expected)
    assert_near(fused_logits, logits)
    for name, gradient in gradients.items():
        assert_near(fused[name], gradient, name)
    assert not torch.allclose(found, losses(untouched, "cpu")[0], rtol=1e-3)
    expected = ids(TorchEngine(plain.cpu().requires_grad_(False)))
    engine = TorchEngine(model.requires_grad_(False), device="cuda")
    with caplog.at_level(logging.WARNING):
        assert [ids(engine) for _ in range(3)] == [expected] * 3
    (warning,) = caplog.records  # it is logged once
    assert warning.message.startswith("the model is not a standard Transformer")
    assert ids(TorchEngine(untouched.cpu())) != expected


@pytest.mark.parametrize("shape", [{}, MODERN], ids=["paper", "modern"])
def test_a_change_between_two_searches_is_seen(shape):
    """Graphs that were recorded before are not replayed after it."""
    for change in (CHANGES["hook on attention"], CHANGES["wrapped linear"], CHANGES["own method"]):
        model, changed = build(**shape).requires_grad_(False), build(**shape).requires_grad_(False)
        change(changed)
        expected = ids(TorchEngine(changed))
        engine = TorchEngine(model.cuda(), device="cuda")
        for _ in range(3):  # warming up, recording, replaying
            before = ids(engine)
        change(model)
        assert ids(engine) == expected != before


@pytest.mark.parametrize("shape", [{}, MODERN], ids=["paper", "modern"])
def test_recording_attention_changes_no_bit(shape):
    model, maps = build(**shape).requires_grad_(False).cuda(), []
    accelerate(model)
    source, target = (side.to("cuda") for side in batch())
    before = model(source, target)
    hooks = [
        part.register_forward_pre_hook(
            lambda attention, inputs: maps.append(attention.weights(*inputs[:4]))
        )
        for layer in (*model.encoder, *model.decoder)
        for name, part in layer.named_children()
        if name.endswith("attention")
    ]
    assert torch.equal(model(source, target), before)
    assert len(maps) == len(hooks) == 5
