"""Bundles that version 0.1.0 wrote load to the bit, and translate as they did.

tests/bundles holds two of them, with the logits and translations that 0.1.0 gave.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from transduce.config import SearchConfig
from transduce.engines.torch import TorchEngine, load_model
from transduce.model import Tokens
from transduce.storage.bundle import load_bundle

FOLDER = Path(__file__).with_name("bundles")


@pytest.fixture(params=["paper", "modern"])
def name(request):
    return request.param


def test_every_weight_is_loaded_to_the_bit_under_its_name(name):
    model, stored = (
        load_model(load_bundle(FOLDER / name)),
        load_file(FOLDER / name / "model.safetensors"),
    )
    loaded = model.state_dict()
    assert list(loaded.keys() ^ stored.keys()) == []
    assert all(torch.equal(loaded[key], stored[key]) for key in stored)


def test_logits_and_translations_are_what_they_were(name):
    model = load_model(load_bundle(FOLDER / name))
    said, pad = json.loads((FOLDER / f"{name}.json").read_text()), model.config.pad
    target = Tokens.padded(said["targets"], pad).shifted_right(pad)
    logits = model(Tokens.padded(said["sources"], pad), target)
    torch.testing.assert_close(logits, load_file(FOLDER / f"{name}.safetensors")["logits"])
    for beam_size in (1, 4):
        found = TorchEngine(model).search(
            said["sources"], SearchConfig(beam_size=beam_size, max_extra=4)
        )
        ids, scores = zip(*said["found"][f"beam_{beam_size}"], strict=True)
        assert [one[0].ids for one in found] == list(ids)
        assert [one[0].score for one in found] == pytest.approx(scores, rel=1e-5)
