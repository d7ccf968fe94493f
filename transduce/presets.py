"""The paper's models by name: `base`, `big`, every row of Table 3, the parser of §6.3; and `modern`, `tiny`.

Each is a short step from `base`; a name of Table 3 reads like the row: `table3-B-dk16`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transduce.config import ModelConfig, Recipe, SearchConfig, TrainingConfig
from transduce.errors import ConfigError

BASE = Recipe()
BIG_STEPS = 300_000  # §5.2


def _change(recipe: Recipe, **model: Any) -> Recipe:
    return replace(recipe, model=replace(recipe.model, **model))


def _train(**training: Any) -> Recipe:
    return replace(BASE, training=replace(BASE.training, **training))


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

# §6.3. The paper gives 4 layers, d_model 1024, the vocabulary and the search; the rest is `big`'s.
PARSER = replace(
    _change(BIG, N=4, vocab_size=16_000),
    search=SearchConfig(beam_size=21, alpha=0.3, max_extra=300),
)

# What the field does today: pre-norm, RMSNorm, rotary positions, SwiGLU (its three matrices hold what two of d_ff did).
MODERN = replace(
    _change(BASE, norm_order="pre", norm="rms", positions="rotary", activation="swiglu", d_ff=1344),
    training=TrainingConfig(optimizer="adamw", weight_decay=0.01, clip_norm=1.0),
)

TINY = Recipe(
    model=ModelConfig(vocab_size=2_000, N=2, d_model=128, d_ff=512, h=4, d_k=32, d_v=32),
    training=TrainingConfig(steps=2_000, tokens_per_step=4_000, warmup_steps=400),
)

PRESETS: dict[str, Recipe] = {
    "base": BASE,
    "big": BIG,
    **{f"table3-{row}": recipe for row, recipe in TABLE_3.items()},
    "parser": PARSER,
    "modern": MODERN,
    "tiny": TINY,
}


def preset(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in PRESETS:
        raise ConfigError(f"no preset is called {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]
