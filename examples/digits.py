"""A tiny language pair for the other examples: "4 0 7" is "four zero seven"."""

import random
from pathlib import Path

from transduce import ModelConfig, Recipe, TrainingConfig
from transduce.config import CorpusConfig, DataConfig, TokenizerConfig

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def write_pairs(folder: Path, name: str, count: int, longest: int = 5, seed: int = 1) -> CorpusConfig:
    """Write `name.num` and `name.en`, one sentence per line."""
    draw = random.Random(seed)
    numbers = [draw.choices(range(10), k=draw.randint(1, longest)) for _ in range(count)]
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / f"{name}.num", folder / f"{name}.en"
    source.write_text("".join(" ".join(map(str, digits)) + "\n" for digits in numbers))
    target.write_text("".join(" ".join(WORDS[digit] for digit in digits) + "\n" for digits in numbers))
    return CorpusConfig(source=str(source.resolve()), target=str(target.resolve()))


def recipe(folder: Path, *, steps: int = 400, pairs: int = 3000, **model) -> Recipe:
    """A recipe that trains a small Transformer on such pairs in seconds, on a CPU."""
    small = {"N": 1, "d_model": 64, "d_ff": 128, "h": 4, "d_k": 16, "d_v": 16, "p_drop": 0.0, "vocab_size": 75}
    return Recipe(
        model=ModelConfig(**(small | model)),
        data=DataConfig(
            source_language="num",
            corpora=(write_pairs(folder, "train", pairs),),
            validation=(write_pairs(folder, "valid", 100, seed=2),),
            tokenizer=TokenizerConfig(vocab_size=75, byte_fallback=False, character_coverage=1.0),
        ),
        training=TrainingConfig(
            steps=steps, tokens_per_step=300, warmup_steps=50, learning_rate=5e-3, schedule="cosine", eps_ls=0.0,
            report_every=10, validate_every=250, save_every=250, validation_sentences=50, average_checkpoints=1,
        ),
    )  # fmt: skip
