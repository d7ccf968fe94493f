"""Measure how long it takes to inspect a sentence, with a model of random weights on this CPU.

    python -m bench.inspection [--preset base] [--tokens 25] [--threads 2]

The translation has as many tokens as the source. The median of all rounds counts; the first round,
which also prepares the weights, is shown apart.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from transduce import inspect
from transduce.config import SearchConfig
from transduce.engines.torch import TorchEngine
from transduce.model import Transformer
from transduce.presets import preset
from transduce.translation.translator import Translator


class Numbers:
    """A tokenizer whose words are numbers."""

    def __init__(self, size: int) -> None:
        self.size = size

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return [int(word) % self.size for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        return " ".join(map(str, ids))


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", default="base")
    parser.add_argument("--tokens", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    # A translator that writes as many tokens as it reads.
    recipe = preset(options.preset)
    length = options.tokens - 1  # and the end of the sentence
    search = SearchConfig(beam_size=recipe.search.beam_size, max_length=length)
    torch.manual_seed(1)
    model = Transformer(recipe.model).eval().requires_grad_(False)
    numbers = Numbers(recipe.model.vocab_size - 3)
    translator = Translator.from_model(model, numbers, numbers, recipe, search=search)
    translator.engine = TorchEngine(model, frozen=True)

    seconds = []
    for _ in range(1 + options.rounds):
        text = " ".join(map(str, torch.randint(2, numbers.size, (length,)).tolist()))
        start = time.perf_counter()
        inspect(translator, text).to_dict()
        seconds.append(time.perf_counter() - start)
    first, *others = seconds
    print(
        f"{options.preset}, {options.tokens} source and target tokens, {options.threads} threads: "
        f"{statistics.median(others):.2f} s for each sentence, {first:.2f} s for the first one"
    )


if __name__ == "__main__":
    main()
