"""Two promises: a translation does not depend on its neighbours, and not on the engine."""

import random
from functools import partial

import pytest

from tests import trained
from transduce.corpora.phrases import phrases
from transduce.recipe import adjusted
from transduce.storage.bundle import load_bundle
from transduce.translation.translator import Translator

ENGINES = [
    ("torch", "float32"),
    ("torch", "bf16"),
    ("ctranslate2", "float32"),
    ("ctranslate2", "int8"),
]


@pytest.fixture(scope="module")
def texts():
    return [source for source, _ in phrases("en", "de", 12_000, seed=5)["train"]][:1000]


@pytest.fixture(scope="module")
def well_trained(tmp_path_factory):
    """A model whose decisions are mostly clear, like those of a trained one."""
    return load_bundle(trained.save(tmp_path_factory.mktemp("well") / "b", steps=600))


def translator(bundle, engine, precision, beam):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    search = partial(adjusted, beam_size=beam)
    return Translator(bundle, engine=engine, device="cpu", precision=precision, search=search)


def in_random_batches(translator, texts, seed):
    chance, order, found = random.Random(seed), list(range(len(texts))), {}
    chance.shuffle(order)
    while order:
        batch, order = (lambda n: (order[:n], order[n:]))(chance.choice([2, 3, 7, 40, 150]))
        found |= zip(batch, translator.translate([texts[i] for i in batch]), strict=True)
    return [found[i].text for i in range(len(texts))]


def agreement(some, others):
    return sum(a == b for a, b in zip(some, others, strict=True)) / len(some)


def check_neighbours(bundle, texts, engine, precision, beam, enough):
    mine = translator(bundle, engine, precision, beam)
    alone = [mine.translate(text).text for text in texts]
    assert agreement(alone, in_random_batches(mine, texts, beam)) >= enough


@pytest.mark.parametrize(("engine", "precision"), ENGINES)
def test_some_sentences_translate_alone_as_in_batches(bundle, texts, engine, precision):
    """The small model of all tests guesses more than it knows: int8, whose sums we do not choose, shows it."""
    check_neighbours(bundle, texts[:30], engine, precision, 2, 0.9 if precision == "int8" else 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize(("engine", "precision"), ENGINES)
def test_a_thousand_sentences_translate_alone_as_in_batches(
    well_trained, texts, engine, precision, beam
):
    check_neighbours(
        well_trained, texts, engine, precision, beam, 1.0 if precision == "float32" else 0.999
    )


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_a_thousand_sentences_are_the_same_in_all_engines(well_trained, texts, beam):
    found = [
        [one.text for one in translator(well_trained, engine, "float32", beam).translate(texts)]
        for engine in ("torch", "ctranslate2")
    ]
    assert agreement(*found) == 1
