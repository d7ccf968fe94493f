"""The first difference is named, and rounding is not a difference."""

import math

import pytest

from transduce.config import SearchConfig
from transduce.engines.self_check import plain_log_probs
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import ExportError
from transduce.exporters.verification import SAMPLE, verify


class Echo:
    """Return our own numbers in place of those of another runtime."""

    name = "Echo"

    def __init__(self, model):
        self.model = model

    def log_probs(self, source, target):
        return plain_log_probs(self.model, source, target)

    def greedy(self, source, length):
        config = SearchConfig(beam_size=1, min_length=0, max_length=length)
        return TorchEngine(self.model).search([source], config)[0][0].ids


@pytest.fixture(scope="module")
def model(bundle):
    return load_model(bundle)


def test_the_same_numbers_pass_and_are_reported(model):
    assert verify(model, Echo(model)) == {
        "sequences": SAMPLE, "largest_difference": 0.0, "same_translations": SAMPLE, "tolerance": 1e-4
    }  # fmt: skip


@pytest.mark.parametrize("error", [0.05, -0.05, math.nan])
def test_the_first_token_that_differs_is_named(error, model, monkeypatch):
    seen = []

    class Wrong(Echo):
        def log_probs(self, source, target):
            seen.append(target)
            right = super().log_probs(source, target)
            return [*right[:-1], right[-1] + error] if len(seen) == 3 else right

    with pytest.raises(ExportError, match="Wrong gives token") as raised:
        verify(model, type("Wrong", (Wrong,), {"name": "Wrong"})(model))
    assert f"token {len(seen[2])} of sample 3 the log-probability" in str(raised.value)


def test_a_translation_that_differs_is_named(model):
    class Wrong(Echo):
        def greedy(self, source, length):
            return [7, *super().greedy(source, length)[1:]]

    with pytest.raises(
        ExportError, match=r"Echo translates sample 1 as \[7, .*\], but transduce as \["
    ):
        verify(model, Wrong(model))


def test_too_few_numbers_are_no_pass(model):
    class Short(Echo):
        def log_probs(self, source, target):
            return super().log_probs(source, target)[:-1]

    with pytest.raises(ValueError, match="shorter"):
        verify(model, Short(model))
