"""Measure how fast raw text becomes a token store, compared with line-by-line Python.

    python -m bench.prepare en-de.toml

It prepares the corpora of the recipe from end to end, and a sample of them line by line. The
line-by-line way is the usual three passes of a single process: text to pieces, a dictionary of the
pieces, and the ids of each line. It uses a given vocabulary and neither cleans nor shuffles; its
time is extrapolated from the sample.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sentencepiece

from transduce.config import Recipe
from transduce.cores import available_cores
from transduce.data.pairs import Pair
from transduce.data.prepare import prepare
from transduce.data.readers.corpus import read_pairs
from transduce.data.tokenizer import Tokenizer
from transduce.recipe import load_recipe

RESULTS = Path(__file__).parent / "results"
PROCESSES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def tokenize_line_by_line(
    tokenizer: Tokenizer, sides: tuple[list[str], list[str]], folder: Path
) -> None:
    """Turn text into ids as the usual scripts do once the vocabulary is learned."""
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())

    # First pass: pieces as text.
    for side, lines in enumerate(sides):
        with (folder / f"{side}.pieces").open("w", encoding="utf-8") as pieces:
            for line in lines:
                pieces.write(" ".join(model.encode(line, out_type=str)) + "\n")

    # Second pass: a dictionary of the pieces.
    counts: Counter[str] = Counter()
    for side in (0, 1):
        with (folder / f"{side}.pieces").open(encoding="utf-8", newline="\n") as pieces:
            for line in pieces:
                counts.update(line.split())
    index = {piece: number for number, (piece, _) in enumerate(counts.most_common(), 4)}

    # Third pass: the ids of each line.
    for side in (0, 1):
        with (
            (folder / f"{side}.pieces").open(encoding="utf-8", newline="\n") as pieces,
            (folder / f"{side}.bin").open("wb") as out,
        ):
            for line in pieces:
                ids = [index.get(piece, 3) for piece in line.split()]
                ids.append(2)
                out.write(np.array(ids, dtype=np.uint16).tobytes())


def processor_seconds() -> float:
    """Return the CPU time of this process and its children.

    Unlike elapsed time, it is the same on a busy machine.
    """
    seconds = 0.0
    for process in PROCESSES:
        usage = resource.getrusage(process)
        seconds += usage.ru_utime + usage.ru_stime
    return seconds


def peak_kib() -> int:
    """Return the peak memory of the largest process."""
    return max(resource.getrusage(process).ru_maxrss for process in PROCESSES)


def measure(recipe: Recipe, base: Path, sample: int, workers: int) -> dict[str, object]:
    """Measure both ways; return elapsed time and CPU time in seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stages: list[str] = []

        def note_stage(line: str) -> None:
            stages.append(f"{line} ({processor_seconds():.0f} s of CPU time so far)")

        # The whole preparation.
        start = time.perf_counter()
        cpu_start = processor_seconds()
        store = prepare(recipe, base, folder / "bench.store", workers=workers, say=note_stage)
        seconds = time.perf_counter() - start
        cpu_seconds = processor_seconds() - cpu_start
        peak = peak_kib()

        # A second call, which finds the finished store.
        start = time.perf_counter()
        prepare(recipe, base, folder / "bench.store", workers=workers)
        second_call = time.perf_counter() - start

        # The line-by-line way on a sample.
        corpora = store.manifest["sections"]["train"]["corpora"].values()
        pairs_read = sum(corpus["read"] for corpus in corpora)
        every = pairs_read // sample or 1
        pairs = list(itertools.islice(all_pairs(recipe, base), 0, sample * every, every))
        sides = ([pair.source for pair in pairs], [pair.target for pair in pairs])
        cpu_start = processor_seconds()
        tokenize_line_by_line(store.target_tokenizer, sides, folder)
        line_by_line = (processor_seconds() - cpu_start) * pairs_read / len(pairs)

        source_tokens = store.train.source.offsets[-1]
        target_tokens = store.train.target.offsets[-1]
        return {
            "pairs": pairs_read,
            "kept": store.train.pairs,
            "tokens": int(source_tokens + target_tokens),
            "workers": workers,
            "seconds": seconds,
            "processor_seconds": cpu_seconds,
            "processor_seconds_line_by_line": line_by_line,
            "seconds_of_a_second_call": second_call,
            "peak_mib_of_a_process": peak // 1024,
            "stages": stages,
        }


def all_pairs(recipe: Recipe, base: Path) -> Iterator[Pair]:
    """Yield all pairs of the recipe's corpora."""
    data = recipe.data
    for corpus in data.corpora:
        yield from read_pairs(corpus, data.source_language, data.target_language, base)


def main() -> None:
    """Measure, print the results and write bench/results/prepare.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", help="recipe with the corpora")
    parser.add_argument(
        "overrides", nargs="*", help="settings such as data.tokenizer.vocab_size=8000"
    )
    parser.add_argument(
        "--sample", type=int, default=50_000, help="number of pairs for the line-by-line way"
    )
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="number of worker processes"
    )
    arguments = parser.parse_args()

    recipe = load_recipe(arguments.recipe, arguments.overrides)
    result = measure(recipe, Path(arguments.recipe).parent, arguments.sample, arguments.workers)
    for name, value in result.items():
        print(f"{name:32} {value:,.1f}" if isinstance(value, float) else f"{name:32} {value}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "prepare.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
