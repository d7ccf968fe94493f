"""Perplexity is exp of the mean negative log-likelihood of all reference tokens."""

import math
from dataclasses import replace

import pytest
from torch import nn

from tests import trained
from transduce.engines.self_check import plain_log_probs
from transduce.engines.torch import load_model
from transduce.errors import InputError
from transduce.evaluation.perplexity import measure_perplexity
from transduce.model import Transformer
from transduce.translation.translator import Translator

PAIRS = trained.splits()["test"][:40]
SOURCES = [source for source, _ in PAIRS]
REFERENCES = [target for _, target in PAIRS]


def test_perplexity_is_the_formula_sentence_by_sentence(bundle):
    translator = Translator(bundle, engine="torch", device="cpu")
    reader, writer = translator.tokenizers
    model = load_model(bundle)
    log_probs = []
    for source, reference in PAIRS:
        log_probs += plain_log_probs(model, reader.encode(source), writer.encode(reference))

    done = []
    found = measure_perplexity(translator, SOURCES, REFERENCES, advance=done.append)
    assert found.tokens == len(log_probs)
    assert found.loss == pytest.approx(-sum(log_probs) / len(log_probs), rel=1e-5)
    assert found.value == pytest.approx(math.exp(found.loss))
    assert sum(done) == len(PAIRS)


def test_a_model_in_memory_has_a_perplexity(bundle):
    translator = Translator(bundle, engine="torch", device="cpu")
    expected = measure_perplexity(translator, SOURCES, REFERENCES)
    in_memory = Translator.from_model(load_model(bundle), *translator.tokenizers, bundle.recipe)
    found = measure_perplexity(in_memory, SOURCES, REFERENCES)
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)


def test_a_model_without_a_forward_is_encoded_and_decoded(bundle):
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = load_model(bundle)
            self.config = self.inner.config
            self.encode = self.inner.encode
            self.decode = self.inner.decode

    tokenizers = Translator(bundle, engine="torch", device="cpu").tokenizers
    whole = Translator.from_model(load_model(bundle), *tokenizers, bundle.recipe)
    parts = Translator.from_model(Parts(), *tokenizers, bundle.recipe)
    expected = measure_perplexity(whole, SOURCES, REFERENCES)
    found = measure_perplexity(parts, SOURCES, REFERENCES)
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)


def test_a_forward_of_its_own_is_called_as_in_training(bundle):
    class Confident(Transformer):
        def forward(self, source, target):
            return 2 * super().forward(source, target)

    model = Confident(bundle.recipe.model).eval()
    model.load_state_dict(bundle.weights())
    tokenizers = Translator(bundle, engine="torch", device="cpu").tokenizers
    own = Translator.from_model(model, *tokenizers, bundle.recipe)
    plain = Translator.from_model(load_model(bundle), *tokenizers, bundle.recipe)
    own_loss = measure_perplexity(own, SOURCES, REFERENCES).loss
    assert own_loss != pytest.approx(measure_perplexity(plain, SOURCES, REFERENCES).loss, rel=0.01)


def test_pairs_beyond_the_learned_positions_are_counted(bundle):
    tokenizers = Translator(bundle, engine="torch", device="cpu").tokenizers
    lengths = [
        max(len(tokenizer.encode(text)) for tokenizer, text in zip(tokenizers, pair, strict=True))
        for pair in PAIRS
    ]

    def measure(longest):
        config = replace(bundle.recipe.model, positions="learned", max_positions=longest)
        translator = Translator.from_model(Transformer(config), *tokenizers, bundle.recipe)
        return measure_perplexity(translator, SOURCES, REFERENCES)

    limit = sorted(lengths)[len(PAIRS) // 2]
    assert measure(max(lengths)).left_out == 0
    assert measure(limit).left_out == sum(length > limit for length in lengths) > 0
    with pytest.raises(InputError, match="all 40 pairs are longer than the 2 positions"):
        measure(2)


def test_better_references_have_a_lower_perplexity(bundle):
    translator = Translator(bundle, engine="torch", device="cpu")
    right = measure_perplexity(translator, SOURCES, REFERENCES)
    wrong = measure_perplexity(translator, SOURCES, REFERENCES[::-1])
    assert right.value < wrong.value


def test_an_ensemble_has_no_perplexity(bundle):
    translator = Translator([bundle, bundle], engine="torch", device="cpu")
    with pytest.raises(InputError, match="the perplexity of an ensemble of 2 models"):
        measure_perplexity(translator, SOURCES, REFERENCES)
