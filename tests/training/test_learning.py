"""Which precision a run trains in."""

import pytest
import torch

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
    recipe = load_recipe("tiny", [f"training.precision={precision}", "model.vocab_size=50"])
    assert Learning(recipe, CPU, Hooks(model=model)).bf16 == expected
