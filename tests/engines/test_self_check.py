"""The self-check passes for every model, and notices an engine that computes something else."""

import copy

import pytest
import torch

from tests import changes
from tests.model.conftest import CHOICES
from transduce.config import ModelConfig
from transduce.engines.self_check import sample_pairs, search_difference
from transduce.engines.torch import TorchEngine
from transduce.model import Transformer

SOURCES = [[5, 6, 7, 0], [9, 3, 4, 8, 11, 2, 0], [12, 0]]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_choice_of_a_model_is_searched_as_it_is_trained(choice):
    if "varlen" in choice.values():
        pytest.skip("needs a GPU")
    torch.manual_seed(0)
    model = Transformer(ModelConfig(**{**changes.CONFIG, **choice})).eval()
    engine = TorchEngine(copy.deepcopy(model), frozen=True)
    assert search_difference(engine, model, SOURCES) is None


def test_a_forward_that_only_training_sees_is_noticed():
    class Scaled(type(changes.build())):
        def forward(self, source, target):
            return 0.5 * super().forward(source, target)

    model = changes.build()
    model.__class__ = Scaled
    message = search_difference(TorchEngine(model), model, SOURCES)
    assert message.startswith("the search gives a token of sentence 1 the mean log-probability -")


def test_a_cache_that_is_not_reordered_is_noticed(monkeypatch):
    model = changes.build()
    engine = TorchEngine(copy.deepcopy(model))
    right = engine.search

    def wrong(sources, config, **options):
        return right([source[::-1] for source in sources], config, **options)

    monkeypatch.setattr(engine, "search", wrong)
    assert search_difference(engine, model, SOURCES)


def test_rounding_in_half_precision_is_not_a_difference():
    model = changes.build().bfloat16()
    engine = TorchEngine(copy.deepcopy(model))
    assert search_difference(engine, model, SOURCES) is None


def test_numbers_that_are_not_finite_are_a_difference():
    model = changes.build()
    engine = TorchEngine(copy.deepcopy(model))
    model.output.weight.data.fill_(torch.nan)
    assert search_difference(engine, model, SOURCES)


def test_samples_use_the_ids_of_their_side():
    config = ModelConfig(**changes.CONFIG, sharing="two-way", source_vocab_size=20)
    pairs = sample_pairs(config)
    assert max(max(source) for source, _ in pairs) < 19
    assert pairs == sample_pairs(config)
