"""Measure how fast batches come from a token store of 10 thousand to 10 million pairs.

    python -m bench.batches [--largest 10000000]

For each size it measures the time to open the store, the time to reach a distant step, and the
throughput and memory of packed and padded batches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from transduce.config import TokenizerConfig
from transduce.data.sampler import Sampler
from transduce.data.store import FORMAT, SECTIONS, Store
from transduce.data.tokenizer import Tokenizer
from transduce.data.writer import RaggedWriter, write_file, write_manifest

RESULTS = Path(__file__).parent / "results"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
BLOCK = 10_000  # pairs that are written at a time
TOKENS_PER_STEP = 25_000
STEPS = 150
DISTANT_STEP = 123_456_789


def make_store(folder: Path, pairs: int) -> None:
    """Write a store of random ids, in sentences as long as those of a real corpus."""
    folder.mkdir()

    # A small tokenizer, which every store contains.
    text = [f"{number} {word}" for number in range(100) for word in ("one", "two", "three")]
    tokenizer = Tokenizer.train(text, TokenizerConfig(vocab_size=300))
    write_file(folder / "target.model", tokenizer.to_bytes())
    files = {"target.model": {"bytes": len(tokenizer.to_bytes()), "sha256": tokenizer.fingerprint}}

    # Both sides of each section: the same block of pairs, repeated.
    rng = np.random.default_rng(0)
    longest = 0
    for section in SECTIONS:
        blocks = pairs // BLOCK if section == "train" else 0
        source = np.clip(rng.lognormal(3.0, 0.65, BLOCK), 2, 180).astype(np.int64)
        target = np.clip(source * rng.lognormal(0.05, 0.2, BLOCK), 2, 180).astype(np.int64)
        for side, lengths in (("source", source), ("target", target)):
            ids = rng.integers(2, tokenizer.pad, lengths.sum()).astype("<u2")
            with RaggedWriter(folder, f"{section}.{side}", "<u2") as writer:
                for _ in range(blocks):
                    writer.extend(ids, lengths)
            files |= writer.entries
            longest = max(longest, int(lengths.max()))

    sections: dict[str, Any] = {
        "train": {"corpora": {"random": {"pairs": pairs}}, "variants": 1, "longest": longest},
        "validation": {"corpora": {}, "variants": 1, "longest": 0},
        "test": {"corpora": {}, "variants": 1, "longest": 0},
    }
    write_manifest(
        folder,
        {"format": FORMAT, "fingerprint": "", "joint": True, "sections": sections, "files": files},
    )


def private_mib() -> float:
    """Return the memory of this process that is not backed by a file."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def measure(path: Path) -> dict[str, Any]:
    """Measure one store; this must be the only measurement of the process."""
    memory_before = private_mib()

    # Open the store, then jump far ahead.
    start = time.perf_counter()
    sampler = Sampler(Store(path), tokens_per_step=TOKENS_PER_STEP, seed=1)
    opened = time.perf_counter() - start
    start = time.perf_counter()
    sampler.batch(DISTANT_STEP)
    reached = time.perf_counter() - start
    result: dict[str, Any] = {
        "pairs": sampler.section.pairs,
        "open_ms": opened * 1e3,
        "far_step_ms": reached * 1e3,
    }

    result |= measure_layout(path, "packed")
    result |= measure_layout(path, "padded")
    result["private_mib"] = private_mib() - memory_before
    return result


def measure_layout(path: Path, layout: Literal["packed", "padded"]) -> dict[str, Any]:
    """Measure the throughput of batches in one layout, the used positions and the shapes."""
    sampler = Sampler(Store(path), tokens_per_step=TOKENS_PER_STEP, seed=1, layout=layout)
    tokens = 0
    used = []
    shapes = set()
    start = time.process_time()
    for step in range(STEPS):
        batch = sampler.batch(step)
        tokens += batch.source_tokens + batch.target_tokens
        used.append(batch.efficiency)
        shapes.add((batch.source.shape, batch.target.shape))
    seconds = time.process_time() - start
    return {
        f"{layout}_million_tokens_per_second": tokens / seconds / 1e6,
        f"{layout}_used": float(np.mean(used)),
        f"{layout}_shapes": len(shapes),
    }


def measure_size(pairs: int) -> dict[str, Any]:
    """Make a store of this size and measure it in a new process."""
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "bench.store"
        make_store(store, pairs)
        command = [sys.executable, "-m", "bench.batches", "--measure", str(store)]
        done = subprocess.run(command, check=True, capture_output=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measure, print a table and write bench/results/batches.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--largest", type=int, default=10_000_000, help="pairs of the largest store"
    )
    parser.add_argument("--measure", type=Path, help="measure one store and print JSON (internal)")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return

    results = [measure_size(pairs) for pairs in SIZES if pairs <= arguments.largest]
    for name in results[0]:
        columns = [f"{result[name]:>16,.3f}" for result in results]
        print(f"{name:36}" + "".join(columns))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "batches.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
