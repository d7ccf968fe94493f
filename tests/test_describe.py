"""`transduce describe`: the counts are those of the model, and the FLOPs those of its products."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transduce.config import MODEL_SIZES
from transduce.describe import count_flops, count_parameters, decoding_memory, describe
from transduce.model import Tokens, Transformer
from transduce.presets import PRESETS, TINY


def test_the_tree_adds_up():
    text = describe(PRESETS["base"], batch_tokens=25_000, batch_sentences=64)
    total = int(text.split()[1].replace(",", ""))
    top = [line for line in text.splitlines() if line.startswith(("├", "└"))]
    assert (
        sum(int(line.split()[-1].replace(",", "")) for line in top)
        == total
        == count_parameters(PRESETS["base"].model)
    )
    assert "nothing" in text


def test_stacks_of_any_depth_are_counted():
    config = replace(TINY.model, N=3, N_decoder=5, norm_order="pre")
    assert count_parameters(config) == sum(
        parameter.numel() for parameter in Transformer(config).parameters()
    )


def test_the_largest_model_of_all_is_described_without_building_it():
    """A matrix of it has 10^18 numbers; layers are few because a tree of many takes its time."""
    largest = {
        name: most for name, (_, most) in MODEL_SIZES.items() if name not in ("N", "N_decoder")
    }
    model = replace(TINY.model, sharing="none", positions="learned", **largest)
    text = describe(replace(TINY, model=model), batch_tokens=25_000, batch_sentences=64)
    assert int(text.split()[1].replace(",", "")) == count_parameters(model) > 10**19


def test_what_differs_is_named():
    text = describe(PRESETS["table3-B-dk16"], batch_tokens=25_000, batch_sentences=64)
    assert "model.d_k = 16  (base: 64)" in text


@pytest.mark.parametrize(
    "changes", [{}, {"activation": "swiglu", "N_decoder": 1}, {"d_k": 16, "d_v": 64}]
)
def test_flops_are_those_that_torch_counts(changes):
    config = replace(TINY.model, kernel="written-out", **changes)
    length = 28
    model = Transformer(config).eval()
    tokens = Tokens.padded([[5] * length], config.pad)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(tokens, tokens)
    # Written out, it is computed.
    masked_half = config.decoder_layers * length * config.h * (config.d_k + config.d_v)
    assert count_flops(config, length).forward + masked_half == pytest.approx(
        counter.get_total_flops() / length
    )


@torch.no_grad()
def test_memory_to_decode_is_that_of_weights_cache_and_logits():
    config = replace(TINY.model, d_k=16, d_v=48, N_decoder=1)
    model = Transformer(config).eval()
    tokens = Tokens.padded([[5] * 9] * 6, config.pad)
    logits, state = model.decode(tokens, model.encode(tokens))
    cached = [
        part for layer in state.layers for side in (layer.target, layer.memory) for part in side.now
    ]
    numbers = sum(part.numel() for part in [*model.parameters(), *cached, logits[:, -1]])
    assert decoding_memory(config, sentences=3, beam_size=2, length=9) == 4 * numbers
