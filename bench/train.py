"""Training throughput beside its peers, in one run: python -m bench.train [--preset base] [--steps 40] [--profile].

Every contender takes the same optimizer steps on the same random sentence pairs, of lengths as in news text. Steps hold
pairs of similar lengths in padded rows, as the paper's do (§5.1), of few shapes that all occur before the clock starts;
only ours on CUDA packs them. `--growth` shows instead how ours grows with the length of sentences and with the model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bench.profiling import kernels_of
from transduce.config import Recipe
from transduce.describe import count_flops
from transduce.kernels.accelerate import accelerate
from transduce.kernels.tiles import tiled
from transduce.model import Tokens, Transformer
from transduce.monitoring.hardware import hardware
from transduce.presets import preset
from transduce.storage.disk import whole_file
from transduce.training.cuda_graph import GraphedStep
from transduce.training.distributed import World
from transduce.training.optimizer import build_optimizers
from transduce.training.schedule import learning_rate
from transduce.training.step import Learner, train_step

Pair = tuple[list[int], list[int]]
Step = Callable[[int], object]
RESULTS = Path(__file__).parent / "results"
PEERS = ("transformers.MarianMTModel", "torch.nn.Transformer")
PARTS = {  # of a step, by what stands in the names of operations and kernels; the first that fits
    "attention": ("attend", "attention", "varlen"),
    "loss": ("loss", "softmax", "logsumexp"),
    "optimizer": ("adam", "foreach", "muon", "multi_tensor"),
    "products": ("gemm", "nvjet", "splitk", "mm", "cutlass", "linear", "relu_backward"),
    "embedding": ("embed", "grad_weight", "sum_and_scatter"),
    "residual and norm": ("norm", "residual"),
    "dropout": ("dropout", "bernoulli"),
    "bias and ReLU": ("bias",),
    "sums": ("reduce", "sum"),
}
STEPS = 8  # different ones, over and over
POOL = 64  # of so many, sorted by length: as many as a plan sorts together


def random_steps(
    tokens: int, vocab_size: int, mean: float = 28.0, spread: float = 0.6
) -> list[list[Pair]]:
    """Steps of about so many tokens a side, each of pairs of similar lengths; without a spread sources have one."""
    rng = np.random.default_rng(1)
    pairs: list[Pair] = []
    drawn = 0
    while drawn < POOL * tokens:
        longest = 8 * mean if spread else mean
        source = int(np.clip(rng.lognormal(np.log(mean) - spread**2 / 2, spread), 2, longest))
        lengths = (source, int(np.clip(source * rng.uniform(0.8, 1.25), 2, longest)))
        drawn += max(lengths)
        pairs.append(tuple((rng.zipf(1.3, n) % (vocab_size - 3) + 2).tolist() for n in lengths))  # type: ignore[arg-type]
    pairs.sort(key=lambda pair: max(map(len, pair)))
    positions = np.cumsum([max(map(len, pair)) for pair in pairs])
    ends = np.searchsorted(positions, np.arange(1, POOL) * positions[-1] / POOL)
    steps = [pairs[a:b] for a, b in itertools.pairwise([0, *ends.tolist(), len(pairs)])]
    return steps[POOL // STEPS // 2 :: POOL // STEPS]


def padded(pairs: list[Pair], pad: int) -> tuple[Tokens, Tokens]:
    """One sentence a row, both sides of one length that is a multiple of 8."""
    width = -(-max(len(sentence) for pair in pairs for sentence in pair) // 8) * 8
    source, target = (
        Tokens.packed([[side] for side in sides], pad, width) for sides in zip(*pairs, strict=True)
    )
    return source, target


def ours(recipe: Recipe, steps: list[list[Pair]], device: torch.device) -> Step:
    """One step of transduce: on CUDA packed, in bf16, as a captured graph."""
    pad, cuda = recipe.model.pad, device.type == "cuda"
    counts = [sum(len(target) for _, target in pairs) for pairs in steps]
    if cuda:
        width = (
            -(
                -max(sum(map(len, side)) for pairs in steps for side in zip(*pairs, strict=True))
                // 128
            )
            * 128
        )
        inputs = [
            tuple(
                side.to(device)
                for side in tiled(*(Tokens.packed([sides], pad, width) for sides in zip(*pairs, strict=True)))
            )
            for pairs in steps
        ]  # fmt: skip
    else:
        inputs = [padded(pairs, pad) for pairs in steps]
    model = Transformer(recipe.model).to(device)
    accelerate(model)
    learner = Learner(model, recipe.training.eps_ls, bf16=cuda).train()
    optimizers = build_optimizers(learner.named_parameters(), recipe.training)
    if cuda:
        graphed = GraphedStep(learner, optimizers, recipe.training, device)
    alone = World(0, 1, device)

    def step(i: int) -> object:
        batch, count, rate = (
            [inputs[i % len(inputs)]],
            counts[i % len(inputs)],
            learning_rate(recipe, i + 1),
        )
        if cuda:
            return graphed(batch, count, i + 1, rate)  # type: ignore[arg-type]
        return train_step(learner, optimizers, batch, count, recipe.training, i + 1, rate, alone)  # type: ignore[arg-type]

    return step


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with the paper's embeddings, for comparison."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        config = recipe.model
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad)
        self.positions = nn.Parameter(torch.zeros(512, config.d_model), requires_grad=False)
        self.transformer = nn.Transformer(
            config.d_model,
            config.h,
            config.N,
            config.N,
            config.d_ff,
            config.p_drop,
            batch_first=True,
        )

    def forward(self, source: torch.Tensor, target: torch.Tensor, pad: int) -> torch.Tensor:
        scale = self.embedding.embedding_dim**0.5
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.size(1), device=target.device
        ).isinf()
        x, y = (
            self.embedding(ids) * scale + self.positions[: ids.size(1)] for ids in (source, target)
        )
        hidden = self.transformer(
            x, y, tgt_mask=causal, tgt_is_causal=True, src_key_padding_mask=source == pad,
            tgt_key_padding_mask=target == pad, memory_key_padding_mask=source == pad,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)


def peer(name: str, recipe: Recipe, steps: list[list[Pair]], device: torch.device) -> Step:
    """One step of a peer, on CUDA in bf16 by autocast."""
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
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    inputs = [
        tuple(side.ids.long().to(device) for side in padded(pairs, config.pad)) for pairs in steps
    ]
    counts = [sum(len(target) for _, target in pairs) for pairs in steps]

    def logits(source: torch.Tensor, shifted: torch.Tensor) -> torch.Tensor:
        if isinstance(model, TorchTransformer):
            return model(source, shifted, config.pad)  # type: ignore[no-any-return]
        return model(
            input_ids=source, attention_mask=source != config.pad, decoder_input_ids=shifted
        ).logits  # type: ignore[no-any-return]

    def step(i: int) -> None:
        source, target = inputs[i % STEPS]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            scores = logits(source, F.pad(target[:, :-1], (1, 0), value=config.pad))
            loss = F.cross_entropy(
                scores.flatten(0, 1),
                target.flatten(),
                ignore_index=config.pad,
                label_smoothing=0.1,
                reduction="sum",
            )
        (loss / counts[i % STEPS]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Measured(NamedTuple):
    """Of one contender."""

    step: Step
    warm_up_s: float
    memory_gib: float  # at most, above what was there before it
    step_s: float


def measure(
    contenders: Mapping[str, Callable[[], Step]],
    rounds: int,
    device: torch.device,
    steps: int = STEPS,
) -> dict[str, Measured]:
    """Make each contender and let it warm up; then they take turns, so that a noisy machine is alike to all."""

    def seconds_of(step: Step) -> float:
        start = time.perf_counter()
        for i in range(steps):
            step(i)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    ready: dict[str, Measured] = {}
    for name, make in contenders.items():
        before = memory(device, since_now=True)
        step = make()
        warm = seconds_of(step) + seconds_of(step)
        ready[name] = Measured(step, warm, (memory(device) - before) / 2**30, 0.0)
    times = [
        {name: seconds_of(each.step) / steps for name, each in ready.items()} for _ in range(rounds)
    ]
    return {
        name: each._replace(step_s=statistics.median(time[name] for time in times))
        for name, each in ready.items()
    }


def memory(device: torch.device, *, since_now: bool = False) -> int:
    """The most bytes in use since it was last asked with `since_now`, and then those in use now."""
    if device.type == "cuda":
        if since_now:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()
    if since_now:
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak begins anew
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def profile(step: Step, device: torch.device) -> dict[str, float]:
    """Where the time of a step goes: milliseconds by what is computed, and the dearest kernels on the screen."""
    kernels = kernels_of(lambda: [step(i) for i in range(STEPS)], device)
    parts: dict[str, float] = {}
    for total, count, name in kernels:
        part = next(
            (part for part, names in PARTS.items() if any(each in name.lower() for each in names)),
            "rest",
        )
        parts[part] = parts.get(part, 0.0) + total / STEPS
        if total > 0.01 * sum(each for each, _, _ in kernels):
            print(f"{total / STEPS:9.3f} ms {count / STEPS:7.1f} x {part:<14} {name[:90]}")
    return parts


def growth(recipe: Recipe, device: torch.device, rounds: int) -> list[dict[str, float | str]]:
    """Ours alone, as sentences grow to 8,192 tokens and as the model grows."""
    rows: list[dict[str, float | str]] = []
    lengths = [
        (recipe, f"sentences of {length:,} tokens", float(length), 0.0)
        for length in (32, 128, 512, 2048, 8192)
    ]
    names = ("tiny", "base", "big") if device.type == "cuda" else ("table3-C-N2", "base")
    models = [(replace(preset(name), training=recipe.training), name, 28.0, 0.6) for name in names]
    for each, name, length, spread in [*lengths, *models]:
        tokens = max(each.training.tokens_per_step, int(2 * length))
        steps = random_steps(tokens, each.model.vocab_size, length, spread)[1::3]
        made = measure({name: partial(ours, each, steps, device)}, rounds, device, len(steps))[name]
        rate = sum(len(target) for pairs in steps for _, target in pairs) / len(steps) / made.step_s
        rows.append({"name": name, "target_tokens_per_second": rate, "memory_gib": made.memory_gib})
        print(f"{name:<34} {rate:>12,.0f} target tokens/s {made.memory_gib:>6.1f} GiB")
    return rows


def main() -> None:
    """Measure, print a table and write JSON."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="base" if cuda else "tiny")
    parser.add_argument("--vocab-size", type=int, default=0 if cuda else 1000)
    parser.add_argument(
        "--tokens", type=int, default=0 if cuda else 1500, help="a step, on each side"
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--profile", action="store_true", help="where the time of a step goes")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument(
        "--growth", action="store_true", help="with the length of sentences, and with the model"
    )
    parser.add_argument("--json", type=Path, default=RESULTS / "train.json")
    arguments = parser.parse_args()
    arguments.json.parent.mkdir(exist_ok=True)
    # A place that cannot be written is better known before the work.
    with whole_file(arguments.json) as file:
        file.write(json.dumps(results(arguments), indent=1).encode())


def results(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what is asked for and print a table of it."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    recipe = preset(arguments.preset)
    recipe = replace(
        recipe,
        model=replace(recipe.model, vocab_size=arguments.vocab_size or recipe.model.vocab_size),
        training=replace(
            recipe.training, tokens_per_step=arguments.tokens or recipe.training.tokens_per_step
        ),
    )
    tokens = recipe.training.tokens_per_step
    print(
        f"{arguments.preset}, {tokens:,} + {tokens:,} tokens a step, {device.type}, {torch.get_num_threads()} threads"
    )
    result: dict[str, object] = {"preset": arguments.preset, "tokens": tokens, "device": hardware()}
    if arguments.growth:
        result["growth"] = growth(recipe, device, arguments.rounds)
    else:
        steps = random_steps(tokens, recipe.model.vocab_size, 28.0 if cuda else 14.0)
        contenders = {"transduce": partial(ours, recipe, steps, device)}
        if not arguments.alone:
            contenders |= {name: partial(peer, name, recipe, steps, device) for name in PEERS}
        count = sum(len(target) for pairs in steps for _, target in pairs) / STEPS
        flops = count_flops(recipe.model).training * count / 1e12
        rows = measure(contenders, arguments.rounds, device)
        if arguments.profile:
            result["milliseconds"] = profile(rows["transduce"].step, device)
        slowest = max(each.step_s for each in rows.values())
        for name, each in rows.items():
            print(
                f"{name:<28} {count / each.step_s:>11,.0f} target tokens/s {slowest / each.step_s:>6.2f} x "
                f"{each.step_s * 1e3:>9.2f} ms {flops / each.step_s:>7.2f} TFLOP/s {each.memory_gib:>6.2f} GiB, "
                f"warm after {each.warm_up_s:.1f} s"
            )
        result["results"] = {
            name: {
                "warm_up_s": each.warm_up_s, "memory_gib": each.memory_gib, "step_ms": each.step_s * 1e3,
                "target_tokens_per_second": count / each.step_s,
            }
            for name, each in rows.items()
        }  # fmt: skip
    return result


if __name__ == "__main__":
    main()
