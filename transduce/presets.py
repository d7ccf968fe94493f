"""Recipes by name: the paper's models, every row of Table 3, and models for small or modern use.

Each preset is written as its difference from `base`. Names of Table 3 are those of its rows:
`table3-B-dk16`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transduce.config import DataConfig, Recipe, SearchConfig, TokenizerConfig, TrainingConfig
from transduce.errors import ConfigError

BASE = Recipe()
BIG_STEPS = 300_000  # §5.2


def _change(recipe: Recipe, **model: Any) -> Recipe:
    """Return the recipe with other settings of the model."""
    return replace(recipe, model=replace(recipe.model, **model))


def _train(**training: Any) -> Recipe:
    """Return `base` with other settings of training."""
    return replace(BASE, training=replace(BASE.training, **training))


def _vocabulary(recipe: Recipe, size: int) -> Recipe:
    """Return the recipe with a tokenizer, and therefore a model, of that many pieces."""
    data = DataConfig(tokenizer=TokenizerConfig(vocab_size=size))
    return replace(_change(recipe, vocab_size=size), data=data)


BIG = replace(
    _change(BASE, d_model=1024, d_ff=4096, h=16, p_drop=0.3),
    training=TrainingConfig(steps=BIG_STEPS, average_checkpoints=20, keep_checkpoints=20),
)

TABLE_3 = {
    "base": BASE,
    "A-h1": _change(BASE, h=1, d_k=512, d_v=512),
    "A-h4": _change(BASE, h=4, d_k=128, d_v=128),
    "A-h16": _change(BASE, h=16, d_k=32, d_v=32),
    "A-h32": _change(BASE, h=32, d_k=16, d_v=16),
    "B-dk16": _change(BASE, d_k=16),
    "B-dk32": _change(BASE, d_k=32),
    "C-N2": _change(BASE, N=2),
    "C-N4": _change(BASE, N=4),
    "C-N8": _change(BASE, N=8),
    "C-dmodel256": _change(BASE, d_model=256, d_k=32, d_v=32),
    "C-dmodel1024": _change(BASE, d_model=1024, d_k=128, d_v=128),
    "C-dff1024": _change(BASE, d_ff=1024),
    "C-dff4096": _change(BASE, d_ff=4096),
    "D-drop0.0": _change(BASE, p_drop=0.0),
    "D-drop0.2": _change(BASE, p_drop=0.2),
    "D-ls0.0": _train(eps_ls=0.0),
    "D-ls0.2": _train(eps_ls=0.2),
    "E-learned": _change(BASE, positions="learned"),
    "big": BIG,
}

# §6.3 gives 4 layers, d_model 1024, the vocabulary and the search. The rest is that of `big`.
PARSER = replace(
    _vocabulary(_change(BIG, N=4), 16_000),
    search=SearchConfig(beam_size=21, alpha=0.3, max_extra=300),
)

# Pre-norm, RMSNorm, rotary positions and SwiGLU. Its three feed-forward matrices have about as
# many parameters as the two of d_ff = 2048. It reaches more than `base` with half of the tokens,
# and with Muon sooner than with AdamW (docs/results.md, "Longer runs" and "German to English").
# Its learning rate falls to zero, so nothing is averaged.
MODERN = replace(
    _change(BASE, norm_order="pre", norm="rms", positions="rotary", activation="swiglu", d_ff=1344),
    training=TrainingConfig(
        steps=20_000,
        optimizer="muon",
        weight_decay=0.01,
        clip_norm=1.0,
        schedule="cosine",
        warmup_steps=2_000,
        learning_rate=2e-3,
        average_checkpoints=1,
    ),
)

# For about 10,000 pairs, and for trying things out on a CPU.
TINY = replace(
    _vocabulary(_change(BASE, N=2, d_model=128, d_ff=512, h=4, d_k=32, d_v=32), 2_000),
    training=TrainingConfig(steps=2_000, tokens_per_step=4_000, warmup_steps=400),
)

# For about 100,000 pairs; measured in docs/results.md, section "Small data".
SMALL = replace(
    _vocabulary(_change(BASE, norm_order="pre", d_ff=1024, p_drop=0.2), 16_000),
    training=TrainingConfig(
        steps=5_000,
        tokens_per_step=8_000,
        schedule="cosine",
        warmup_steps=1_000,
        learning_rate=1e-3,
        validate_every=800,
        save_every=800,
    ),
)

# For `transduce distil`: a deep encoder, which reads all words at once, and a shallow decoder,
# which writes one word after the other. In int8 its weights take 25 MB.
STUDENT = replace(
    _vocabulary(_change(MODERN, N=8, N_decoder=2, d_model=384, d_ff=1024, h=6), 16_000),
    training=MODERN.training,
)

PRESETS: dict[str, Recipe] = {
    "base": BASE,
    "big": BIG,
    **{f"table3-{row}": recipe for row, recipe in TABLE_3.items()},
    "parser": PARSER,
    "modern": MODERN,
    "tiny": TINY,
    "small": SMALL,
    "student": STUDENT,
}


def preset(name: str) -> Recipe:
    """Return the recipe of that name."""
    if name not in PRESETS:
        raise ConfigError(f"{name!r} is not the name of a preset; use one of {', '.join(PRESETS)}")
    return PRESETS[name]
