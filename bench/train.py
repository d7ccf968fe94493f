"""Compare the training throughput with other libraries in one run.

    python -m bench.train [--preset base] [--rounds 6] [--profile]

Every contender takes the same optimizer steps on the same random sentence pairs, with lengths as in
news text. A step contains pairs of similar lengths in padded rows, as in the paper (§5.1); only
transduce on CUDA packs them. All shapes occur before the measurement starts. `--growth` shows
instead how our throughput changes with the length of the sentences and the size of the model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.figures import command_line, record_figure
from bench.profiling import kernels_of
from bench.training_steps import (
    PEERS,
    STEPS,
    Step,
    build_our_step,
    build_peer_step,
    random_steps,
    target_tokens,
    uses_bf16,
)
from transduce.config import Recipe
from transduce.describe import count_flops
from transduce.monitoring.hardware import hardware
from transduce.presets import preset
from transduce.storage.disk import whole_file

RESULTS = Path(__file__).parent / "results"

# Parts of a step by words in the names of operations and kernels; the first match counts.
PARTS = {
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


class Measurement(NamedTuple):
    """The measured step of one contender."""

    step: Step
    warm_up_s: float
    memory_gib: float  # peak, above the memory that was in use before
    step_s: float


def main() -> None:
    """Measure, print a table and write the results as JSON."""
    arguments = build_parser().parse_args()
    arguments.json.parent.mkdir(exist_ok=True)

    # Open the file first: a path that cannot be written should fail before the work.
    with whole_file(arguments.json) as file:
        result = results(arguments)
        file.write(json.dumps(result, indent=1).encode())

    if arguments.record:
        name = f"train-{arguments.preset}-{'cuda' if torch.cuda.is_available() else 'cpu'}"
        command = command_line("bench.train", sys.argv[1:])
        values = figure_values(result["results"])
        record_figure(arguments.record, name, values, command, hardware())


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line; the defaults depend on the device."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="base" if cuda else "tiny", help="model to train")
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=0 if cuda else 1000,
        help="size of the vocabulary (0: as in the preset)",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=0 if cuda else 1500,
        help="tokens per step on each side (0: as in the preset)",
    )
    parser.add_argument("--rounds", type=int, default=6, help="measurements per contender")
    parser.add_argument("--profile", action="store_true", help="show where the time of a step goes")
    parser.add_argument("--alone", action="store_true", help="measure transduce only")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--growth",
        action="store_true",
        help="show how throughput changes with sentence length and model size",
    )
    modes.add_argument(
        "--record", type=Path, help="also write the figure into this file (docs/figures.json)"
    )
    parser.add_argument("--json", type=Path, default=RESULTS / "train.json", help="output file")
    return parser


def results(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure what the arguments ask for, print a table and return the results."""
    # What is measured, and where.
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    recipe = build_recipe(arguments)
    tokens = recipe.training.tokens_per_step
    precision = "bf16" if uses_bf16(device) else "float32"
    print(
        f"{arguments.preset}, {tokens:,} + {tokens:,} tokens per step, {device.type}, {precision}, "
        f"{torch.get_num_threads()} threads"
    )
    result: dict[str, Any] = {"preset": arguments.preset, "tokens": tokens, "device": hardware()}
    if arguments.growth:
        result["growth"] = growth(recipe, device, arguments.rounds)
    else:
        result |= compare(recipe, device, arguments)
    return result


def build_recipe(arguments: argparse.Namespace) -> Recipe:
    """Return the preset with the vocabulary and step size of the arguments."""
    recipe = preset(arguments.preset)
    vocab_size = arguments.vocab_size or recipe.model.vocab_size
    tokens = arguments.tokens or recipe.training.tokens_per_step
    return replace(
        recipe,
        model=replace(recipe.model, vocab_size=vocab_size),
        training=replace(recipe.training, tokens_per_step=tokens),
    )


def compare(recipe: Recipe, device: torch.device, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all contenders, print a table and return its rows."""
    # The same steps for all contenders; on a CPU shorter sentences, as in the demo.
    mean_length = 28.0 if device.type == "cuda" else 14.0
    tokens = recipe.training.tokens_per_step
    steps = random_steps(tokens, recipe.model.vocab_size, mean_length)
    contenders = {"transduce": partial(build_our_step, recipe, steps, device)}
    if not arguments.alone:
        for name in PEERS:
            contenders[name] = partial(build_peer_step, name, recipe, steps, device)

    # The profile is a run of its own, after the measurement.
    rows = measure(contenders, arguments.rounds, device)
    result: dict[str, Any] = {}
    if arguments.profile:
        result["milliseconds"] = profile(rows["transduce"].step, device)

    # Rates of an average step.
    count = sum(target_tokens(pairs) for pairs in steps) / STEPS
    tflop = count_flops(recipe.model).training * count / 1e12
    print_rows(rows, count, tflop)
    result["results"] = {
        name: {
            "warm_up_s": row.warm_up_s,
            "memory_gib": row.memory_gib,
            "step_ms": row.step_s * 1e3,
            "target_tokens_per_second": count / row.step_s,
        }
        for name, row in rows.items()
    }
    return result


def print_rows(rows: Mapping[str, Measurement], count: float, tflop: float) -> None:
    """Print one line per contender, with its speed relative to the slowest."""
    slowest = max(row.step_s for row in rows.values())
    for name, row in rows.items():
        print(
            f"{name:<28} {count / row.step_s:>11,.0f} target tokens/s "
            f"{slowest / row.step_s:>6.2f} x {row.step_s * 1e3:>9.2f} ms "
            f"{tflop / row.step_s:>7.2f} TFLOP/s {row.memory_gib:>6.2f} GiB, "
            f"warm after {row.warm_up_s:.1f} s"
        )


def figure_values(rows: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the values for docs/figures.json, rounded as docs/results.md shows them."""
    values: dict[str, Any] = {}
    for name, row in rows.items():
        rate = row["target_tokens_per_second"]
        values[name] = {
            "target_tokens_per_second": int(round(rate, -3 if rate >= 100_000 else -2)),
            "step_ms": round(row["step_ms"], 1),
            "memory_gib": round(row["memory_gib"], 1),
        }
        if name != "transduce":
            values[name]["ratio"] = round(row["step_ms"] / rows["transduce"]["step_ms"], 2)
    return values


def measure(
    contenders: Mapping[str, Callable[[], Step]],
    rounds: int,
    device: torch.device,
    steps: int = STEPS,
) -> dict[str, Measurement]:
    """Build and warm up all contenders; then measure them in turns and return the medians.

    Taking turns spreads the noise of a shared machine evenly over the contenders.
    """

    def seconds_of(step: Step) -> float:
        start = time.perf_counter()
        for index in range(steps):
            step(index)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    # Build each contender and run all its shapes twice.
    rows: dict[str, Measurement] = {}
    for name, build in contenders.items():
        before = memory(device, reset=True)
        step = build()
        warm_up_s = seconds_of(step) + seconds_of(step)
        memory_gib = (memory(device) - before) / 2**30
        rows[name] = Measurement(step, warm_up_s, memory_gib, 0.0)

    # Measure in turns.
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, row in rows.items():
            times[name].append(seconds_of(row.step) / steps)
    return {name: row._replace(step_s=statistics.median(times[name])) for name, row in rows.items()}


def memory(device: torch.device, *, reset: bool = False) -> int:
    """Return the peak memory in bytes; `reset` first starts a new peak at the current use."""
    if device.type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()
    if reset:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak on Linux
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def profile(step: Step, device: torch.device) -> dict[str, float]:
    """Return the milliseconds of each part of a step, and print the most expensive kernels."""

    def run_steps() -> None:
        for index in range(STEPS):
            step(index)

    kernels = kernels_of(run_steps, device)
    all_ms = sum(total for total, _, _ in kernels)
    parts: dict[str, float] = {}
    for total, count, name in kernels:
        part = part_of(name)
        parts[part] = parts.get(part, 0.0) + total / STEPS
        if total > 0.01 * all_ms:
            print(f"{total / STEPS:9.3f} ms {count / STEPS:7.1f} x {part:<14} {name[:90]}")
    return parts


def part_of(kernel: str) -> str:
    """Return the part of a step that a kernel belongs to, by its name."""
    for part, words in PARTS.items():
        if any(word in kernel.lower() for word in words):
            return part
    return "rest"


def growth(recipe: Recipe, device: torch.device, rounds: int) -> list[dict[str, float | str]]:
    """Measure transduce alone with sentences of up to 8,192 tokens and with larger models."""
    # Recipe, label, mean length of sentences, spread of lengths.
    cases = [
        (recipe, f"sentences of {length:,} tokens", float(length), 0.0)
        for length in (32, 128, 512, 2048, 8192)
    ]
    names = ("tiny", "base", "big") if device.type == "cuda" else ("table3-C-N2", "base")
    cases += [(replace(preset(name), training=recipe.training), name, 28.0, 0.6) for name in names]

    # Each case alone; a step holds at least two sentences.
    rows: list[dict[str, float | str]] = []
    for case, label, length, spread in cases:
        tokens = max(case.training.tokens_per_step, int(2 * length))
        steps = random_steps(tokens, case.model.vocab_size, length, spread)[1::3]
        build = partial(build_our_step, case, steps, device)
        row = measure({label: build}, rounds, device, len(steps))[label]
        count = sum(target_tokens(pairs) for pairs in steps) / len(steps)
        rate = count / row.step_s
        rows.append({"name": label, "target_tokens_per_second": rate, "memory_gib": row.memory_gib})
        print(f"{label:<34} {rate:>12,.0f} target tokens/s {row.memory_gib:>6.1f} GiB")
    return rows


if __name__ == "__main__":
    main()
