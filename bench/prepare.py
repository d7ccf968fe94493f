"""How fast raw text becomes a token store, beside line-by-line Python as fairseq's scripts do it.

    python -m bench.prepare en-de.toml        the recipe's corpora, end to end, and a sample of them line by line

The line-by-line way is the usual three passes of one process: pieces as text, a dictionary of them, ids of each line.
It is given the vocabulary, cleans nothing and shuffles nothing; its time is of a sample, times the rest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import sentencepiece

from transduce.config import Recipe
from transduce.data.prepare import prepare
from transduce.data.readers.corpus import read_pairs
from transduce.data.tokenizer import Tokenizer
from transduce.data.workers import available_cores
from transduce.recipe import load_recipe

RESULTS = Path(__file__).parent / "results"


def line_by_line(tokenizer: Tokenizer, sides: tuple[list[str], list[str]], folder: Path) -> None:
    """What the usual scripts do once the vocabulary is learned."""
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())
    for side, lines in enumerate(sides):
        with (folder / f"{side}.pieces").open("w", encoding="utf-8") as pieces:
            for line in lines:
                pieces.write(" ".join(model.encode(line, out_type=str)) + "\n")
    counts: Counter[str] = Counter()
    for side in (0, 1):
        with (folder / f"{side}.pieces").open(encoding="utf-8", newline="\n") as pieces:
            for line in pieces:
                counts.update(line.split())
    index = {piece: number for number, (piece, _) in enumerate(counts.most_common(), 4)}
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
    """Of this process and of those it started: unlike time on the clock, the same on a busy machine."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in used)


def measure(recipe: Recipe, base: Path, sample: int, workers: int) -> dict[str, object]:
    """Seconds of both ways, on the clock and of the processors."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stages: list[str] = []
        started, spent = time.perf_counter(), processor_seconds()
        store = prepare(
            recipe,
            base,
            folder / "bench.store",
            workers=workers,
            say=lambda line: stages.append(
                f"{line} ({processor_seconds():.0f} s of the processors so far)"
            ),
        )
        seconds, spent = time.perf_counter() - started, processor_seconds() - spent
        peak = max(
            resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        started = time.perf_counter()
        prepare(recipe, base, folder / "bench.store", workers=workers)
        again = time.perf_counter() - started
        read = sum(
            about["read"] for about in store.manifest["sections"]["train"]["corpora"].values()
        )
        kept, tokens = (
            store.train.pairs,
            int(store.train.source.offsets[-1] + store.train.target.offsets[-1]),
        )
        data = recipe.data
        pairs = (
            p
            for c in data.corpora
            for p in read_pairs(c, data.source_language, data.target_language, base)
        )
        some = list(itertools.islice(pairs, 0, sample * (read // sample or 1), read // sample or 1))
        slow = processor_seconds()
        line_by_line(
            store.target_tokenizer,
            ([pair.source for pair in some], [pair.target for pair in some]),
            folder,
        )
        slow = (processor_seconds() - slow) * read / len(some)
    return {
        "pairs": read,
        "kept": kept,
        "tokens": tokens,
        "workers": workers,
        "seconds": seconds,
        "processor_seconds": spent,
        "processor_seconds_line_by_line": slow,
        "seconds_of_a_second_call": again,
        "peak_mib_of_a_process": peak // 1024,
        "stages": stages,
    }


def main() -> None:
    """Measure, print, and write bench/results/prepare.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--sample", type=int, default=50_000, help="pairs for the line-by-line way")
    parser.add_argument("--workers", type=int, default=available_cores())
    arguments = parser.parse_args()
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    result = measure(recipe, Path(arguments.recipe).parent, arguments.sample, arguments.workers)
    for name, value in result.items():
        print(f"{name:32} {value:,.1f}" if isinstance(value, float) else f"{name:32} {value}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "prepare.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
