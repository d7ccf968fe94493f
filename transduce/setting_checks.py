"""Check settings: every value has the type of its setting, and every number is in its range."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, NamedTuple

from transduce.errors import ConfigError

INFINITY = float("inf")


class Range(NamedTuple):
    """The numbers that a setting may have; None is no limit."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def violation(self, value: float) -> str | None:
        """Return the limit that a number breaks, in words; NaN breaks every limit."""
        if self.least is not None and not value >= self.least:
            return f"at least {self.least:,}"
        if self.above is not None and not value > self.above:
            return "positive" if self.above == 0 else f"above {self.above:,}"
        if self.most is not None and not value <= self.most:
            return f"at most {self.most:,}"
        if self.below is not None and not value < self.below:
            return "finite" if self.below == INFINITY else f"below {self.below:,}"
        return None


# A larger number is a mistake or an attack: a loop over it would take hours.
MOST = 10**12
COUNT = Range(least=1, most=MOST)
COUNT_OR_OFF = Range(least=0, most=MOST)  # 0 switches something off
POSITIVE = Range(above=0, below=INFINITY)
SHARE = Range(least=0, below=1)  # a probability, rate or decay

# Larger models would not fit on any machine.
_VOCABULARY = Range(least=3, most=10**8)
_LAYERS = Range(least=1, most=1_000)
_WIDTH = Range(least=1, most=10**6)

# The range of each number, by section and setting.
RANGES: dict[str, dict[str, Range]] = {
    "model": {
        **dict.fromkeys(("vocab_size", "source_vocab_size"), _VOCABULARY),
        **dict.fromkeys(("N", "N_decoder"), _LAYERS),
        **dict.fromkeys(("d_model", "d_ff", "h", "d_k", "d_v"), _WIDTH),
        **dict.fromkeys(("p_drop", "p_drop_attention", "p_drop_activation"), SHARE),
        "norm_eps": POSITIVE,
        "max_positions": Range(least=1, most=10**6),
        "r": COUNT,
    },
    "data": {
        "max_tokens": Range(least=2, most=10**6),
        "temperature": Range(above=0),
        "case_variants": Range(least=0, most=0.5),
    },
    "data.corpora": {"weight": POSITIVE},
    "data.clean": {
        **dict.fromkeys(("max_words", "max_characters", "max_ratio"), COUNT),
        **dict.fromkeys(("min_letters", "leak_words", "language_sample"), COUNT_OR_OFF),
    },
    "data.tokenizer": {
        "vocab_size": _VOCABULARY,
        **dict.fromkeys(("variants", "training_sentences"), COUNT),
        "sampling": SHARE,
        "character_coverage": Range(least=0.98, most=1),  # what SentencePiece accepts
    },
    "training": {
        **dict.fromkeys(("steps", "tokens_per_step", "warmup_steps"), COUNT),
        **dict.fromkeys(("report_every", "validate_every", "save_every"), COUNT),
        **dict.fromkeys(("keep_checkpoints", "average_checkpoints"), COUNT),
        **dict.fromkeys(("validation_sentences", "patience"), COUNT_OR_OFF),
        "early_save_every": COUNT_OR_OFF,
        **dict.fromkeys(("weight_decay", "clip_norm"), Range(least=0, below=INFINITY)),
        **dict.fromkeys(("eps_ls", "beta_1", "beta_2", "ema"), SHARE),
        **dict.fromkeys(("eps", "learning_rate"), POSITIVE),
        "micro_batches": Range(least=0, most=1_024),
        "seed": Range(least=0, most=2**63 - 1),
    },
    "search": {
        **dict.fromkeys(("beam_size", "n_best"), Range(least=1, most=1_000)),
        "max_extra": Range(least=0, most=10**6),
        "min_length": Range(least=0, most=1_000),  # tokens that every translation takes time for
        "max_length": Range(least=1, most=10**6),
        **dict.fromkeys(("no_repeat_ngram", "max_repeats", "top_k"), COUNT_OR_OFF),
        "seed": Range(least=0, most=2**63 - 1),
        "alpha": Range(least=0, most=10),  # a larger power overflows
        "patience": Range(above=0),
        "temperature": Range(least=0, below=INFINITY),
        "top_p": Range(above=0, most=1),
    },
}


def refuse_unless(condition: bool, message: str) -> None:
    """Raise a ConfigError with this message, unless a condition holds."""
    if not condition:
        raise ConfigError(message)


def mistaken_type(value: Any, hint: Any, name: str) -> str | None:
    """Return what is wrong with a value whose type should be `hint`, or None if it is right."""
    kind = typing.get_origin(hint)
    options = typing.get_args(hint)

    if kind is types.UnionType:  # X | None
        return None if value is None else mistaken_type(value, options[0], name)

    if kind is Literal:
        known = isinstance(value, str) and value in options
        return None if known else f"{name} is {value!r}; expected one of {', '.join(options)}"

    if kind is tuple:
        if not isinstance(value, tuple):
            return f"{name} is {value!r}; expected a list"
        for index, item in enumerate(value):
            mistake = mistaken_type(item, options[0], f"{name}[{index}]")
            if mistake:
                return mistake
        return None

    fits = type(value) in (int, float) if hint is float else type(value) is hint
    return None if fits else f"{name} is {value!r}; expected {hint.__name__}"


def settings_of(kind: type) -> dict[str, Any]:
    """Return the settings of a section with their types."""
    if kind not in _SETTINGS:
        _SETTINGS[kind] = typing.get_type_hints(kind)
    return _SETTINGS[kind]


_SETTINGS: dict[type, dict[str, Any]] = {}  # resolving type hints is slow: do it once


def check_settings(settings: Any, section: str) -> None:
    """Refuse a setting that has the wrong type, and a number outside of its range."""
    ranges = RANGES.get(section, {})
    for name, hint in settings_of(type(settings)).items():
        full_name = f"{section}.{name}"
        value = getattr(settings, name)
        mistake = mistaken_type(value, hint, full_name)
        if mistake:
            raise ConfigError(mistake)
        if value is None or name not in ranges:
            continue
        limit = ranges[name].violation(value)
        if limit:
            number = f"{value:,}" if isinstance(value, int) else str(value)
            raise ConfigError(f"{full_name} is {number}; it must be {limit}")


def as_tuples(settings: Any, *names: str) -> None:
    """Convert a single string, or a list, to a tuple, so that Python accepts what TOML does."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, str):
            object.__setattr__(settings, name, (value,))
        elif isinstance(value, list):
            object.__setattr__(settings, name, tuple(value))
