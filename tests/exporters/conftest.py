"""A small bundle whose every weight matters, and ways to vary it."""

from dataclasses import replace

import pytest
import torch

from tests import trained
from transduce.config import DataConfig, Recipe, SearchConfig, TokenizerConfig
from transduce.data.tokenizer import Tokenizer
from transduce.model import Transformer
from transduce.storage.bundle import load_bundle, save_bundle

SMALL = replace(trained.MODEL, N=1, N_decoder=2, d_model=32, d_ff=48, d_k=8, d_v=8)


@pytest.fixture(scope="session")
def tokenizer():
    texts = [text for pair in trained.splits()["train"][:1000] for text in pair]
    return Tokenizer.train(texts, TokenizerConfig(vocab_size=SMALL.vocab_size))


@pytest.fixture(scope="session")
def sentences():
    return [source for source, _ in trained.splits()["test"][:40]]


@pytest.fixture(scope="session")
def make_bundle(tokenizer, tmp_path_factory):
    """A bundle of random weights, with settings of the model changed."""

    def make(files=None, **changes):
        torch.manual_seed(5)
        model = Transformer(replace(SMALL, **changes))
        for parameter in model.parameters():
            # Biases and norms off their starting point, so that they matter.
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
        recipe = Recipe(
            model=model.config, data=DataConfig(max_tokens=128), search=SearchConfig(beam_size=1)
        )
        files = files or {"tokenizer.model": tokenizer.to_bytes()}
        path = tmp_path_factory.mktemp("bundles") / "bundle"
        return load_bundle(save_bundle(path, recipe, model.state_dict(), files, {}, {}))

    return make


@pytest.fixture(scope="session")
def bundle(make_bundle):
    return make_bundle()
