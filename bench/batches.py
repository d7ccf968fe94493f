"""How fast batches come from a store, and how starting grows with it: from 10 thousand to 10 million pairs.

python -m bench.batches [--largest 10000000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from transduce.config import TokenizerConfig
from transduce.data.sampler import Sampler
from transduce.data.store import FORMAT, SECTIONS, Store
from transduce.data.tokenizer import Tokenizer
from transduce.data.writer import RaggedWriter, write_file, write_manifest

RESULTS = Path(__file__).parent / "results"
BLOCK = 10_000
TOKENS = 25_000


def make_store(folder: Path, pairs: int) -> None:
    """A store of random ids in sentences as long as a corpus has them."""
    folder.mkdir()
    text = [f"{number} {word}" for number in range(100) for word in ("one", "two", "three")]
    tokenizer = Tokenizer.train(text, TokenizerConfig(vocab_size=300))
    write_file(folder / "target.model", tokenizer.to_bytes())
    files = {"target.model": {"bytes": len(tokenizer.to_bytes()), "sha256": tokenizer.fingerprint}}
    chance = np.random.default_rng(0)
    longest = 0
    for section in SECTIONS:
        source = np.clip(chance.lognormal(3.0, 0.65, BLOCK), 2, 180).astype(np.int64)
        target = np.clip(source * chance.lognormal(0.05, 0.2, BLOCK), 2, 180).astype(np.int64)
        for side, lengths in (("source", source), ("target", target)):
            ids = chance.integers(2, tokenizer.pad, lengths.sum()).astype("<u2")
            with RaggedWriter(folder, f"{section}.{side}", "<u2") as writer:
                for _ in range(pairs // BLOCK if section == "train" else 0):
                    writer.extend(ids, lengths)
            files |= writer.entries
            longest = max(longest, int(lengths.max()))
    sections = {
        section: {"corpora": {}, "variants": 1, "longest": 0} for section in ("validation", "test")
    } | {"train": {"corpora": {"made up": {"pairs": pairs}}, "variants": 1, "longest": longest}}
    write_manifest(
        folder,
        {"format": FORMAT, "fingerprint": "", "joint": True, "sections": sections, "files": files},
    )


def private_mib() -> float:
    """Memory of this process that no file backs."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def measure(path: Path) -> dict[str, Any]:
    """Starting and reading, in a process of its own."""
    before = private_mib()
    started = time.perf_counter()
    plan = Sampler(Store(path), tokens_per_step=TOKENS, seed=1)
    opened = time.perf_counter() - started
    started = time.perf_counter()
    plan.batch(123_456_789)
    reached = time.perf_counter() - started
    result: dict[str, Any] = {
        "pairs": plan.section.pairs,
        "open_ms": opened * 1e3,
        "far_step_ms": reached * 1e3,
    }
    for layout in ("packed", "padded"):
        plan = Sampler(Store(path), tokens_per_step=TOKENS, seed=1, layout=layout)  # type: ignore[arg-type]
        tokens, used, shapes = 0, [], set()
        started = time.process_time()
        for step in range(150):
            batch = plan.batch(step)
            tokens += batch.source_tokens + batch.target_tokens
            used.append(batch.efficiency)
            shapes.add((batch.source.shape, batch.target.shape))
        result[f"{layout}_million_tokens_per_second"] = (
            tokens / (time.process_time() - started) / 1e6
        )
        result[f"{layout}_used"] = float(np.mean(used))
        result[f"{layout}_shapes"] = len(shapes)
    result["private_mib"] = private_mib() - before
    return result


def main() -> None:
    """Measure, print, and write bench/results/batches.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("--measure", type=Path, help="one store (how the others are started)")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    results = []
    for pairs in (10_000, 100_000, 1_000_000, 10_000_000):
        if pairs <= arguments.largest:
            with tempfile.TemporaryDirectory() as name:
                make_store(Path(name) / "x.store", pairs)
                command = [
                    sys.executable,
                    "-m",
                    "bench.batches",
                    "--measure",
                    str(Path(name) / "x.store"),
                ]
                results.append(
                    json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                )
    for name in results[0]:
        print(f"{name:36}" + "".join(f"{result[name]:>16,.3f}" for result in results))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "batches.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
