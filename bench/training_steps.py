"""The training steps that bench.train measures: the same random pairs for every contender."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bench.peers import TorchTransformer, build_marian
from transduce.config import Recipe
from transduce.kernels.accelerate import accelerate
from transduce.kernels.cpu import multiplies_bf16
from transduce.kernels.tiles import tiled
from transduce.model import Tokens, Transformer
from transduce.training.cuda_graph import GraphedStep
from transduce.training.distributed import World
from transduce.training.optimizer import build_optimizers, learning_rate
from transduce.training.step import Learner, train_step

Pair = tuple[list[int], list[int]]
Step = Callable[[int], object]

PEERS = ("transformers.MarianMTModel", "torch.nn.Transformer")
STEPS = 8  # different steps, repeated
POOL = 64  # steps that are sorted by length together, as in a training run
ROW_MULTIPLE = 8  # padded rows
PACKED_MULTIPLE = 128  # packed rows


def random_steps(
    tokens: int, vocab_size: int, mean: float = 28.0, spread: float = 0.6
) -> list[list[Pair]]:
    """Return steps of about this many tokens per side, each with pairs of similar lengths.

    With a spread of 0, all sources have the same length.
    """
    rng = np.random.default_rng(1)
    longest = 8 * mean if spread else mean

    # Lengths are log-normal, as in news text; tokens follow Zipf's law.
    pairs: list[Pair] = []
    drawn = 0
    while drawn < POOL * tokens:
        drawn_length = rng.lognormal(np.log(mean) - spread**2 / 2, spread)
        source_length = int(np.clip(drawn_length, 2, longest))
        target_length = int(np.clip(source_length * rng.uniform(0.8, 1.25), 2, longest))
        source = random_sentence(rng, source_length, vocab_size)
        target = random_sentence(rng, target_length, vocab_size)
        drawn += max(source_length, target_length)
        pairs.append((source, target))

    # Sort the pool by length and cut it into parts of equal size.
    pairs.sort(key=longer_side)
    positions = np.cumsum([longer_side(pair) for pair in pairs])
    ends = np.searchsorted(positions, np.arange(1, POOL) * positions[-1] / POOL)
    bounds = [0, *ends.tolist(), len(pairs)]
    steps = [pairs[begin:end] for begin, end in itertools.pairwise(bounds)]

    # Take every eighth part, so that all lengths occur.
    stride = POOL // STEPS
    return steps[stride // 2 :: stride]


def random_sentence(rng: np.random.Generator, length: int, vocab_size: int) -> list[int]:
    """Return random token ids; 0, 1 and the padding id do not occur."""
    ids: list[int] = (rng.zipf(1.3, length) % (vocab_size - 3) + 2).tolist()
    return ids


def longer_side(pair: Pair) -> int:
    """Return the length of the longer side of a pair."""
    return max(len(pair[0]), len(pair[1]))


def target_tokens(pairs: list[Pair]) -> int:
    """Return the number of target tokens of one step."""
    return sum(len(target) for _, target in pairs)


def round_up(length: int, multiple: int) -> int:
    """Return the smallest multiple that is not below the length."""
    return -(-length // multiple) * multiple


def padded(pairs: list[Pair], pad: int) -> tuple[Tokens, Tokens]:
    """Return one sentence per row, with the same width on both sides."""
    width = round_up(max(longer_side(pair) for pair in pairs), ROW_MULTIPLE)
    sources = [[source] for source, _ in pairs]
    targets = [[target] for _, target in pairs]
    return Tokens.packed(sources, pad, width), Tokens.packed(targets, pad, width)


def packed(steps: list[list[Pair]], pad: int, device: torch.device) -> list[tuple[Tokens, Tokens]]:
    """Return each step as one packed row per side, all of the same width."""
    longest = 0
    # The width that holds the longest step.
    for pairs in steps:
        source_length = sum(len(source) for source, _ in pairs)
        longest = max(longest, source_length, target_tokens(pairs))
    width = round_up(longest, PACKED_MULTIPLE)

    # Tiles are made in advance, as the prefetch thread of a training run does.
    inputs = []
    for pairs in steps:
        source = Tokens.packed([[source for source, _ in pairs]], pad, width)
        target = Tokens.packed([[target for _, target in pairs]], pad, width)
        tiled_source, tiled_target = tiled(source, target)
        inputs.append((tiled_source.to(device), tiled_target.to(device)))
    return inputs


def uses_bf16(device: torch.device) -> bool:
    """Return whether all contenders compute in bf16: on a GPU, or on a CPU that multiplies it."""
    return device.type == "cuda" or multiplies_bf16()


def build_our_step(recipe: Recipe, steps: list[list[Pair]], device: torch.device) -> Step:
    """Return one step of transduce: on CUDA with packed rows, as a CUDA graph."""
    cuda = device.type == "cuda"
    pad = recipe.model.pad
    counts = [target_tokens(pairs) for pairs in steps]
    # A CUDA graph needs one shape for all steps, which packing gives.
    inputs = packed(steps, pad, device) if cuda else [padded(pairs, pad) for pairs in steps]

    # The same parts as in a training run, without the run.
    model = Transformer(recipe.model).to(device)
    accelerate(model)
    learner = Learner(model, recipe.training.eps_ls, bf16=uses_bf16(device)).train()
    optimizers = build_optimizers(learner.named_parameters(), recipe.training)
    if cuda:
        graphed = GraphedStep(learner, optimizers, recipe.training, device)
    alone = World(0, 1, device)

    def step(index: int) -> object:
        batch = [inputs[index % len(inputs)]]
        count = counts[index % len(inputs)]
        number = index + 1
        rate = learning_rate(recipe, number)
        if cuda:
            return graphed(batch, count, number, rate)
        return train_step(learner, optimizers, batch, count, recipe.training, number, rate, alone)

    return step


def build_peer_step(
    name: str, recipe: Recipe, steps: list[list[Pair]], device: torch.device
) -> Step:
    """Return one step of another library's model; in bf16 with autocast."""
    config = recipe.model
    plain_torch = name == "torch.nn.Transformer"
    model: nn.Module = TorchTransformer(config) if plain_torch else build_marian(config)
    model = model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)

    # The same padded rows for both peers.
    counts = [target_tokens(pairs) for pairs in steps]
    inputs = []
    for pairs in steps:
        source, target = padded(pairs, config.pad)
        inputs.append((source.ids.long().to(device), target.ids.long().to(device)))

    def logits(source: torch.Tensor, shifted: torch.Tensor) -> torch.Tensor:
        if plain_torch:
            scores: torch.Tensor = model(source, shifted)
        else:
            mask = source != config.pad
            scores = model(input_ids=source, attention_mask=mask, decoder_input_ids=shifted).logits
        return scores

    bf16 = uses_bf16(device)

    def step(index: int) -> None:
        source, target = inputs[index % len(inputs)]
        # The decoder reads the target shifted right by one (§3.1), with the paper's smoothed loss.
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            scores = logits(source, F.pad(target[:, :-1], (1, 0), value=config.pad))
            loss = F.cross_entropy(
                scores.flatten(0, 1),
                target.flatten(),
                ignore_index=config.pad,
                label_smoothing=0.1,
                reduction="sum",
            )
        (loss / counts[index % len(inputs)]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
