"""`transduce describe`: the counts are those of the model, and the FLOPs those of its products."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transduce.config import CorpusConfig
from transduce.describe import (
    count_flops,
    count_parameters,
    decoding_memory,
    describe,
    training_memory,
)
from transduce.errors import ConfigError
from transduce.model import Tokens, Transformer
from transduce.presets import BASE, PRESETS, TINY
from transduce.recipe import load_recipe
from transduce.setting_checks import RANGES
from transduce.training.optimizer import build_optimizers
from transduce.training.run_folder import set_vocabulary_sizes


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
    sizes = ("vocab_size", "source_vocab_size", "d_model", "d_ff", "h", "d_k", "d_v")
    largest = {name: RANGES["model"][name].most for name in (*sizes, "max_positions")}
    model = replace(TINY.model, sharing="none", positions="learned", **largest)
    tokenizer = replace(TINY.data.tokenizer, vocab_size=model.vocab_size)
    recipe = replace(TINY, model=model, data=replace(TINY.data, tokenizer=tokenizer))
    text = describe(recipe, batch_tokens=25_000, batch_sentences=64)
    assert int(text.split()[1].replace(",", "")) == count_parameters(model) > 10**19


def as_train_builds(recipe):
    """The model of a recipe whose tokenizer has learned as many pieces as it was asked for."""
    tokenizer = SimpleNamespace(vocab_size=recipe.data.tokenizer.vocab_size)
    store = SimpleNamespace(source_tokenizer=tokenizer, target_tokenizer=tokenizer)
    with torch.device("meta"):
        return Transformer(set_vocabulary_sizes(recipe, store).model)


@pytest.mark.parametrize("overrides", [[], ["data.tokenizer.vocab_size=4000"]])
@pytest.mark.parametrize("name", PRESETS)
def test_what_is_described_is_what_training_builds(name, overrides):
    recipe = load_recipe(name, overrides)
    text = describe(recipe, batch_tokens=25_000, batch_sentences=64)
    model = as_train_builds(recipe)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert int(text.split()[1].replace(",", "")) == parameters
    assert recipe.model.vocab_size == model.config.vocab_size


def test_a_vocabulary_that_training_would_not_build_is_not_described():
    recipe = load_recipe("tiny", ["model.vocab_size=4000"])
    with pytest.raises(ConfigError, match=r"model.vocab_size is 4,000, but"):
        describe(recipe, batch_tokens=25_000, batch_sentences=64)


def test_what_differs_is_named():
    text = describe(PRESETS["table3-B-dk16"], batch_tokens=25_000, batch_sentences=64)
    assert "model.d_k = 16  (base: 64)" in text


def test_what_differs_is_written_as_in_a_recipe():
    recipe = replace(BASE, data=replace(BASE.data, corpora=(CorpusConfig(source=("x.tsv",)),)))
    text = describe(recipe, batch_tokens=25_000, batch_sentences=64)
    assert "x.tsv" not in text  # the text is no property of the model
    assert "  nothing\n" in text
    recipe = replace(BASE, data=replace(BASE.data, clean=replace(BASE.data.clean, off=("copy",))))
    text = describe(recipe, batch_tokens=25_000, batch_sentences=64)
    assert 'data.clean.off = ["copy"]  (base: [])' in text


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


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_memory_to_train_has_what_the_optimizer_and_the_moving_average_keep(optimizer, ema):
    overrides = [
        f"training.optimizer={optimizer}",
        f"training.ema={ema}",
        "model.N=3",
        "model.N_decoder=2",
    ]
    recipe = load_recipe("tiny", overrides)
    model = Transformer(recipe.model)
    optimizers = build_optimizers(model.named_parameters(), recipe.training)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    kept = [*model.parameters(), *(weight.grad for weight in model.parameters())]
    if ema:
        kept += model.parameters()
    for optimizer in optimizers:
        optimizer.step()
        for state in optimizer.state.values():
            kept += [part for name, part in state.items() if name != "step"]
    assert training_memory(recipe, tokens=0) == sum(part.nbytes for part in kept)


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
