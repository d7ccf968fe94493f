"""Training throughput beside its peers, in one run: python -m bench.train [--preset base] [--steps 40] [--profile].

Every contender takes the same optimiser steps on the same random sentence pairs, of lengths as in news text: ours
packed, the peers in padded buckets whose shapes repeat (each shape is warmed up before it is timed).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transduce.config import Recipe
from transduce.describe import count_flops
from transduce.model import Tokens, Transformer
from transduce.presets import preset
from transduce.training.graph import GraphedStep
from transduce.training.optimiser import build_optimisers
from transduce.training.parallel import World
from transduce.training.step import Learner, train_step

Pair = tuple[list[int], list[int]]


def random_pairs(tokens: int, vocab_size: int, seed: int) -> list[Pair]:
    """Sentence pairs of about 28 tokens a side, up to so many tokens on the longer side."""
    rng = np.random.default_rng(seed)
    pairs: list[Pair] = []
    used = np.zeros(2, int)
    while True:
        source = int(np.clip(rng.lognormal(3.2, 0.6), 2, 200))
        lengths = np.array([source, int(np.clip(source * rng.uniform(0.8, 1.25), 2, 220))])
        if ((used + lengths) > tokens).any():
            return pairs
        used += lengths
        pairs.append(tuple((rng.zipf(1.3, n) % (vocab_size - 3) + 2).tolist() for n in lengths))  # type: ignore[arg-type]


def ours(recipe: Recipe, batches: list[list[Pair]], device: torch.device) -> Callable[[int], object]:
    """One step of transduce: packed rows, and on CUDA bf16 and a captured graph."""
    pad, cuda = recipe.model.pad, device.type == "cuda"
    width = -(-recipe.training.tokens_per_step // 128) * 128
    inputs = []
    for pairs in batches:
        sides = [[list(side) for side in column] for column in zip(*pairs, strict=True)]
        if cuda:
            tokens = [Tokens.packed([side], pad, width).to(device) for side in sides]
        else:
            tokens = [Tokens.padded(side, pad) for side in sides]
        inputs.append(((tokens[0], tokens[1]), sum(map(len, sides[1]))))
    learner = Learner(Transformer(recipe.model).to(device), recipe.training.eps_ls, bf16=cuda).train()
    optimisers = build_optimisers(learner.named_parameters(), recipe.training)
    if cuda:
        graphed = GraphedStep(learner, optimisers, recipe, device)
        return lambda i: graphed([inputs[i % len(inputs)][0]], inputs[i % len(inputs)][1], i + 1)
    alone = World(0, 1, device)
    return lambda i: train_step(
        learner, optimisers, [inputs[i % len(inputs)][0]], inputs[i % len(inputs)][1], recipe, i + 1, alone
    )


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with the paper's embeddings, for comparison."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        config = recipe.model
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad)
        self.positions = nn.Parameter(torch.zeros(512, config.d_model), requires_grad=False)
        self.transformer = nn.Transformer(
            config.d_model, config.h, config.N, config.N, config.d_ff, config.p_drop, batch_first=True
        )

    def forward(self, source: torch.Tensor, target: torch.Tensor, pad: int) -> torch.Tensor:
        scale = self.embedding.embedding_dim**0.5
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device).isinf()
        x, y = (self.embedding(ids) * scale + self.positions[: ids.size(1)] for ids in (source, target))
        hidden = self.transformer(
            x, y, tgt_mask=causal, tgt_is_causal=True, src_key_padding_mask=source == pad,
            tgt_key_padding_mask=target == pad, memory_key_padding_mask=source == pad,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)


def peer(name: str, recipe: Recipe, batches: list[list[Pair]], device: torch.device) -> Callable[[int], object]:
    """One step of a peer: padded buckets of similar lengths, as many sub-batches as the step needs."""
    config = recipe.model
    if name == "torch.nn.Transformer":
        model: nn.Module = TorchTransformer(recipe)
    else:
        from transformers import MarianConfig, MarianMTModel

        model = MarianMTModel(
            MarianConfig(
                vocab_size=config.vocab_size, d_model=config.d_model, encoder_layers=config.N, decoder_layers=config.N,
                encoder_attention_heads=config.h, decoder_attention_heads=config.h, encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff, activation_function="relu", scale_embedding=True, dropout=config.p_drop,
                pad_token_id=config.pad, decoder_start_token_id=config.pad, max_position_embeddings=512,
            )
        )  # fmt: skip
    model = model.to(device).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    steps = [_buckets(pairs, config.pad, device) for pairs in batches]
    counts = [sum(len(target) for _, target in pairs) for pairs in batches]

    def logits(source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        if isinstance(model, TorchTransformer):
            return model(source, inputs, config.pad)  # type: ignore[no-any-return]
        return model(input_ids=source, attention_mask=source != config.pad, decoder_input_ids=inputs).logits  # type: ignore[no-any-return]

    def step(i: int) -> None:
        buckets = steps[i % len(steps)]
        count = counts[i % len(steps)]
        for source, target in buckets:
            inputs = F.pad(target[:, :-1], (1, 0), value=config.pad)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                scores = logits(source, inputs)
                loss = F.cross_entropy(
                    scores.flatten(0, 1), target.flatten(), ignore_index=config.pad, label_smoothing=0.1,
                    reduction="sum",
                )  # fmt: skip
            (loss / count).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def _buckets(pairs: list[Pair], pad: int, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sub-batches by length; widths are rounded up to multiples of 8, so that shapes repeat."""
    ordered = sorted(pairs, key=lambda pair: max(map(len, pair)))
    quarters = np.array_split(np.arange(len(ordered)), 12)
    buckets = []
    for quarter in quarters:
        sides = list(zip(*(ordered[index] for index in quarter), strict=True))
        width = -(-max(len(sentence) for side in sides for sentence in side) // 8) * 8
        buckets.append(
            tuple(
                torch.tensor([[*sentence, *[pad] * (width - len(sentence))] for sentence in side], device=device)
                for side in sides
            )
        )
    return buckets  # type: ignore[return-value]


def measure(
    step: Callable[[int], object], steps: int, warm_up: int, device: torch.device
) -> tuple[float, float, float]:
    """(seconds until warm, seconds a step, peak GiB)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    start = time.perf_counter()
    for i in range(warm_up):
        step(i)
    wait()
    warm = time.perf_counter() - start
    start = time.perf_counter()
    for i in range(warm_up, warm_up + steps):
        step(i)
    wait()
    seconds = (time.perf_counter() - start) / steps
    return warm, seconds, torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0


def profile(step: Callable[[int], object], rows: int = 30) -> None:
    """Where the device's time goes, by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as record:
        for i in range(4):
            step(i)
        torch.cuda.synchronize()
    events = sorted(record.key_averages(), key=lambda event: -event.self_device_time_total)
    print(f"{sum(event.self_device_time_total for event in events) / 4e3:8.2f} ms a step on the device")
    for event in events[:rows]:
        print(f"{event.self_device_time_total / 4e3:8.3f} ms {event.count / 4:6.1f} x {event.key[:100]}")


def main() -> None:
    """Measure, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="base" if torch.cuda.is_available() else "tiny")
    parser.add_argument("--vocab-size", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40 if torch.cuda.is_available() else 4)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    recipe = preset(arguments.preset)
    if arguments.vocab_size:
        recipe = replace(recipe, model=replace(recipe.model, vocab_size=arguments.vocab_size))
    tokens = recipe.training.tokens_per_step
    batches = [random_pairs(tokens, recipe.model.vocab_size, seed) for seed in range(4)]
    target_tokens = sum(len(target) for pairs in batches for _, target in pairs) / len(batches)
    names = ["transduce"] + ([] if arguments.alone else ["transformers.MarianMTModel", "torch.nn.Transformer"])
    results = []
    for name in names:
        step = ours(recipe, batches, device) if name == "transduce" else peer(name, recipe, batches, device)
        warm, seconds, memory = measure(step, arguments.steps, 8 if device.type == "cuda" else 4, device)
        flops = count_flops(recipe.model).training * target_tokens / seconds
        results.append(
            {"name": name, "target_tokens_per_second": target_tokens / seconds, "step_ms": seconds * 1e3,
             "warm_up_s": warm, "memory_gib": memory, "tflops": flops / 1e12}
        )  # fmt: skip
        if name == "transduce" and arguments.profile:
            profile(step)
        del step
    print(f"{arguments.preset}, {tokens:,} + {tokens:,} tokens a step, {device.type}")
    for row in results:
        print(
            f"{row['name']:<28} {row['target_tokens_per_second']:>12,.0f} target tokens/s {row['step_ms']:>9.2f} ms "
            f"{row['tflops']:>7.1f} TFLOP/s {row['memory_gib']:>6.1f} GiB, warm after {row['warm_up_s']:.1f} s"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"preset": arguments.preset, "results": results}, indent=1))


if __name__ == "__main__":
    main()
