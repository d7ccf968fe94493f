"""Compare the translation speed with Hugging Face's generate in one run.

    python -m bench.decode [--preset base] [--batches 1 64 512]

Both models have the shape of the preset and random weights. Both read 28 tokens and must write 30.
The contenders take turns, and the shortest time of all rounds counts. The time to read the
decoder's weights once is shown for comparison. `--profile` first prints the most expensive kernels
of one of our searches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.figures import command_line, record_figure
from bench.peers import build_marian
from bench.profiling import kernels_of
from transduce.config import ModelConfig, SearchConfig
from transduce.engines.torch import TorchEngine
from transduce.model import Transformer
from transduce.monitoring.hardware import hardware
from transduce.presets import preset

READ_TOKENS = 28
WRITTEN_TOKENS = 30
RESULTS = Path(__file__).parent / "results"
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}

Sources = list[list[int]]
Contenders = dict[str, Callable[[Sources, int], object]]
Row = dict[str, float]


def main() -> None:
    """Measure, print a table and write the results as JSON."""
    # Settings of the process.
    options = build_parser().parse_args()
    options.json.parent.mkdir(exist_ok=True)
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = DTYPES[options.precision]

    # Both models, of the same shape.
    config = preset(options.preset).model
    torch.manual_seed(1)
    model = Transformer(config).to(device, dtype).eval().requires_grad_(False)
    contenders = {
        "transduce": our_search(model, device),
        "generate": marian_search(config, device, dtype),
    }

    # No step can be faster than one pass over the weights.
    read_ms = 1e3 * weight_reading_seconds(model, options.rounds)
    print(
        f"{options.preset}, {options.precision}, {device.type}: "
        f"reading the decoder's weights {read_ms:.1f} ms"
    )

    rows: list[Row] = []
    result = {
        "preset": options.preset,
        "precision": options.precision,
        "device": hardware(),
        "tokens_per_second": rows,
    }
    # Write the file now and after each row, so that an interruption loses no measurement.
    write_results(options.json, result)
    for batch in options.batches:
        sources = random_sources(batch, config.vocab_size)
        for beam in options.beams:
            if options.profile:
                profile(partial(contenders["transduce"], sources, beam), device)
            row = measure(contenders, sources, beam, options.rounds)
            print_row(row)
            rows.append(row)
            write_results(options.json, result)

    # The headline figure, if asked for.
    if options.record:
        name = f"decode-{options.preset}-{device.type}-{options.precision}"
        command = command_line("bench.decode", sys.argv[1:])
        record_figure(options.record, name, figure_values(rows), command, hardware())


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="base", help="shape of both models")
    parser.add_argument("--batches", type=int, nargs="+", default=[1], help="sentences per call")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="beam sizes")
    parser.add_argument("--rounds", type=int, default=15, help="measurements per contender")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--precision", choices=list(DTYPES), default="float32")
    parser.add_argument(
        "--profile", action="store_true", help="print the most expensive kernels of each search"
    )
    parser.add_argument("--json", type=Path, default=RESULTS / "decode.json", help="output file")
    parser.add_argument(
        "--record", type=Path, help="also write the figure into this file (docs/figures.json)"
    )
    return parser


def write_results(path: Path, result: dict[str, Any]) -> None:
    """Write the results so far as JSON."""
    path.write_text(json.dumps(result, indent=1))


def random_sources(batch: int, vocab_size: int) -> Sources:
    """Return sentences of random tokens, each with its end token."""
    ids = torch.randint(2, vocab_size - 1, (batch, READ_TOKENS - 1))
    return [[*row, 0] for row in ids.tolist()]


def our_search(model: Transformer, device: torch.device) -> Callable[[Sources, int], object]:
    """Return our search as a function of sources and beam size."""
    engine = TorchEngine(model, device=device, frozen=True)

    def search(sources: Sources, beam: int) -> object:
        config = SearchConfig(beam_size=beam, min_length=WRITTEN_TOKENS, max_length=WRITTEN_TOKENS)
        return engine.search(sources, config, token_scores=False)

    return search


def marian_search(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> Callable[[Sources, int], object]:
    """Return Hugging Face's generate as a function of sources and beam size."""
    model = build_marian(config).to(device, dtype).eval()

    @torch.inference_mode()
    def generate(sources: Sources, beam: int) -> object:
        ids = torch.tensor(sources, device=device)
        return model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=WRITTEN_TOKENS,
            max_new_tokens=WRITTEN_TOKENS,
        )

    return generate


def measure(contenders: Contenders, sources: Sources, beam: int, rounds: int) -> Row:
    """Let the contenders take turns and return the tokens per second of each one's best round."""
    seconds = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, search in contenders.items():
            elapsed = least_seconds(partial(search, sources, beam), 1)
            seconds[name] = min(seconds[name], elapsed)

    batch = len(sources)
    rates = {name: batch * WRITTEN_TOKENS / elapsed for name, elapsed in seconds.items()}
    ratio = seconds["generate"] / seconds["transduce"]
    return {"batch": batch, "beam": beam, "ratio": ratio, **rates}


def print_row(row: Row) -> None:
    """Print one measurement as a line."""
    step_ms = 1e3 * row["batch"] / row["transduce"]
    print(
        f"batch {row['batch']:>3} beam {row['beam']}: "
        f"transduce {row['transduce']:>9,.0f} tokens/s generate {row['generate']:>9,.0f} tokens/s  "
        f"ratio {row['ratio']:.2f}  {step_ms:.2f} ms per step"
    )


def figure_values(rows: list[Row]) -> dict[str, Any]:
    """Return the values for docs/figures.json, rounded as docs/results.md shows them."""
    values = {}
    for row in rows:
        values[f"batch {row['batch']}, beam {row['beam']}"] = {
            "transduce": round(row["transduce"]),
            "generate": round(row["generate"]),
            "ratio": round(row["ratio"], 2 if row["ratio"] < 5 else 1),
        }
    return values


def weight_reading_seconds(model: Transformer, rounds: int) -> float:
    """Return the time to read the decoder's weights once: a lower bound for one step."""
    weights = []
    for name, parameter in model.named_parameters():
        if name.startswith(("decoder", "target_embedding")):
            weights.append(parameter)
    return least_seconds(lambda: [weight.sum() for weight in weights], rounds)


def profile(search: Callable[[], object], device: torch.device) -> None:
    """Print the most expensive kernels of one search after a warm-up."""
    for _ in range(3):
        search()
    kernels = kernels_of(search, device)
    milliseconds = sum(total for total, _, _ in kernels)
    calls = sum(count for _, count, _ in kernels)
    per_token = calls / WRITTEN_TOKENS
    print(f"{milliseconds:9.2f} ms in {calls:,} kernels, {per_token:.0f} per token")
    for total, count, name in kernels[:16]:
        print(f"{total:9.2f} ms {count:6} x {name[:100]}")


def least_seconds(function: Callable[[], object], rounds: int) -> float:
    """Return the time of the fastest of several calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
