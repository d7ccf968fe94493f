"""Which precision a run trains in."""

import pytest
import torch

from transduce.kernels.cpu import multiplies_bf16
from transduce.model import Transformer
from transduce.recipe import load_recipe
from transduce.training import learning
from transduce.training.distributed import World
from transduce.training.hooks import Hooks
from transduce.training.learning import Learning

CPU = World(0, 1, torch.device("cpu"))


class Changed(Transformer):
    """A model of someone's own."""

    def encode(self, source):
        return super().encode(source)


@pytest.mark.parametrize(
    ("precision", "model", "has_bf16", "expected"),
    [
        ("auto", Transformer, True, True),
        ("auto", Transformer, False, False),
        ("auto", Changed, True, False),
        ("bf16", Changed, False, True),
        ("float32", Transformer, True, False),
    ],
)
def test_a_cpu_trains_in_bf16_if_it_multiplies_it_and_the_model_is_standard(
    monkeypatch, precision, model, has_bf16, expected
):
    monkeypatch.setattr(learning, "multiplies_bf16", lambda: has_bf16)
    for recompute in ("false", "true"):
        assert learn(CPU, model, precision, recompute).bf16 == expected


def learn(world, model=Transformer, precision="auto", recompute="false"):
    settings = [
        f"training.precision={precision}",
        f"training.recompute={recompute}",
        "model.vocab_size=50",
    ]
    return Learning(load_recipe("tiny", settings), world, Hooks(model=model))


def test_all_ranks_use_the_same_precision(monkeypatch):
    monkeypatch.setattr(learning, "multiplies_bf16", lambda: True)
    # Another rank cannot.
    monkeypatch.setattr(World, "any", lambda *_: True)
    assert not learn(CPU).bf16


def test_bf16_is_not_fast_without_onednn(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not multiplies_bf16()
