"""Models small enough to check exactly."""

import typing

import pytest
import torch

from transduce.config import ModelConfig
from transduce.model import Tokens, Transformer
from transduce.setting_checks import settings_of

SMALL = {
    "vocab_size": 31,
    "N": 2,
    "d_model": 24,
    "d_ff": 40,
    "h": 3,
    "d_k": 8,
    "d_v": 6,
    "p_drop": 0.0,
}

VARIANTS = {
    "paper": {},
    "pre-norm": {"norm_order": "pre"},
    "rms": {"norm": "rms"},
    "gelu": {"activation": "gelu"},
    "swiglu": {"activation": "swiglu"},
    "learned": {"positions": "learned", "max_positions": 40},
    "rotary": {"positions": "rotary"},
    "no positions": {"positions": "none"},
    "two-way": {"sharing": "two-way", "source_vocab_size": 37},
    "unshared": {"sharing": "none"},
    "biases": {"attention_bias": True, "output_bias": True},
    "neighbourhood": {"r": 4},
    "deep encoder": {"N": 3, "N_decoder": 1},
    "heads of one size": {"d_v": 8},
    "modern": {"norm_order": "pre", "norm": "rms", "activation": "swiglu", "positions": "rotary"},
}

# Every value of every setting that is a choice, such as {"norm": "rms"}.
CHOICES = [
    {name: value}
    for name, hint in settings_of(ModelConfig).items()
    if typing.get_origin(hint) is typing.Literal
    for value in typing.get_args(hint)
]


def build(seed=0, **changes):
    """A small model in evaluation mode, in float64 so that equal means equal."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**{**SMALL, **changes})).double().eval()
    # Biases and norms off their starting point, so that they matter.
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
    return model


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def model(request):
    return build(**request.param)


@pytest.fixture
def paper_model():
    return build()


SOURCES = [[5, 6, 7, 0], [9, 3, 4, 8, 11, 2, 0], [12, 0], [5, 5, 5, 29, 17, 0]]
TARGETS = [[15, 4, 0], [3, 8, 8, 21, 20, 19, 18, 2, 0], [7, 0], [13, 0]]


@pytest.fixture
def pair(paper_model):
    """Four sentence pairs, one per row, the target as the decoder's input."""
    pad = paper_model.config.pad
    return Tokens.padded(SOURCES, pad), Tokens.padded(TARGETS, pad).shifted_right(pad)
