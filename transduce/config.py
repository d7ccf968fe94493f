"""All settings, as frozen dataclasses. The defaults are the paper's base model; comments cite its sections.

A contradiction is refused on construction: what was found, what was expected, what to do.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from transduce.errors import ConfigError

Positions = Literal["sinusoidal", "learned", "rotary", "none"]
Activation = Literal["relu", "gelu", "swish", "swiglu", "geglu"]
Sharing = Literal["three-way", "two-way", "none"]
Kernel = Literal["auto", "written-out", "sdpa", "varlen"]
VARLEN_HEADS = {16, 32, 64, 128}  # sizes d_k and d_v that its tiles can have

# The least and the most; with more, no machine could hold a matrix, or even count its numbers.
MODEL_SIZES = {
    **dict.fromkeys(("vocab_size", "source_vocab_size"), (3, 10**8)),
    **dict.fromkeys(("N", "N_decoder"), (1, 1_000)),
    **dict.fromkeys(("d_model", "d_ff", "h", "d_k", "d_v"), (1, 10**6)),
    "max_positions": (1, 10**8),
}
MOST_SEARCHED = {
    "beam_size": 1000,
    "n_best": 1000,
    "max_extra": 10**6,
    "min_length": 10**6,
    "max_length": 10**6,
}


def _refuse_unless(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def mistaken_type(value: Any, hint: Any, name: str) -> str | None:
    """Say what is wrong with a setting's value, whose type is declared as `hint`; None if nothing is."""
    kind, options = typing.get_origin(hint), typing.get_args(hint)
    if kind is types.UnionType:  # X | None
        return None if value is None else mistaken_type(value, options[0], name)
    if kind is Literal:
        known = isinstance(value, str) and value in options
        return None if known else f"{name} is {value!r}; expected one of {', '.join(options)}"
    if kind is tuple:
        if not isinstance(value, tuple):
            return f"{name} is {value!r}; expected a list"
        mistakes = (
            mistaken_type(item, options[0], f"{name}[{index}]") for index, item in enumerate(value)
        )
        return next(filter(None, mistakes), None)
    fits = type(value) in (int, float) if hint is float else type(value) is hint
    return None if fits else f"{name} is {value!r}; expected {hint.__name__}"


def settings_of(kind: type) -> dict[str, Any]:
    """The settings of a section with their types."""
    if kind not in _SETTINGS:
        _SETTINGS[kind] = typing.get_type_hints(kind)
    return _SETTINGS[kind]


_SETTINGS: dict[type, dict[str, Any]] = {}  # looked up once


def _check(
    settings: Any, section: str, least: dict[str, int], most: dict[str, int] | None = None
) -> None:
    """Every setting is of its type, and no number is below the least or above the most that is sane."""
    for name, hint in settings_of(type(settings)).items():
        full, value = f"{section}.{name}", getattr(settings, name)
        if mistake := mistaken_type(value, hint, full):
            raise ConfigError(mistake)
        if value is not None and name in least:
            _refuse_unless(
                value >= least[name], f"{full} is {value}; it must be at least {least[name]}"
            )
        if value is not None and most and value > most.get(name, value):
            raise ConfigError(f"{full} is {value:,}; more than {most[name]:,} is surely a mistake")


def _as_tuples(settings: Any, *names: str) -> None:
    """Let one text, or a list, stand for a tuple of them, as in TOML."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, str | list):
            object.__setattr__(settings, name, (value,) if isinstance(value, str) else tuple(value))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The Transformer (§3), in the paper's symbols."""

    vocab_size: int = 37_000  # §5.1; the last id is padding, whose embedding is the zero vector
    source_vocab_size: int | None = None  # None: one vocabulary for both languages (§5.1)
    N: int = 6  # §3.1, layers of the encoder and of the decoder
    N_decoder: int | None = None  # None: as deep as the encoder (§3.1)
    d_model: int = 512
    d_ff: int = 2048  # §3.3
    h: int = 8  # §3.2.2
    d_k: int = 64
    d_v: int = 64
    p_drop: float = 0.1  # §5.4, on sub-layer outputs and on the sums of embeddings and positions
    p_drop_attention: float = 0.0  # not named in the paper: off
    p_drop_activation: float = 0.0  # not named in the paper: off
    norm_order: Literal["post", "pre"] = "post"  # §3.1: LayerNorm(x + Sublayer(x))
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    activation: Activation = "relu"  # §3.3
    positions: Positions = "sinusoidal"  # §3.5
    max_positions: int = 1024  # rows of the table of learned positions
    r: int | None = None  # §4: self-attention sees a neighbourhood of this size; None: everything
    sharing: Sharing = "three-way"  # §3.4
    attention_bias: bool = False  # Table 3's parameter counts imply none
    output_bias: bool = False
    kernel: Kernel = "auto"  # which implementation computes Equation 1

    def __post_init__(self) -> None:
        least, most = ({name: sizes[end] for name, sizes in MODEL_SIZES.items()} for end in (0, 1))
        _check(self, "model", least, most)
        for name in ("p_drop", "p_drop_attention", "p_drop_activation"):
            value = getattr(self, name)
            _refuse_unless(
                0 <= value < 1, f"model.{name} is {value}; a dropout rate lies in [0, 1)"
            )
        _refuse_unless(
            self.positions != "sinusoidal" or self.d_model % 2 == 0,
            f"model.d_model is {self.d_model}; sinusoidal positions pair sines with cosines and need an even d_model",
        )
        _refuse_unless(
            self.positions != "rotary" or self.d_k % 2 == 0,
            f"model.d_k is {self.d_k}; rotary positions turn pairs of dimensions and need an even d_k",
        )
        _refuse_unless(
            self.positions != "rotary" or self.d_model % self.h == 0,
            f"model.h is {self.h}, which does not divide model.d_model {self.d_model}; rotary positions need it to",
        )
        _refuse_unless(
            self.r is None or self.r >= 1,
            f"model.r is {self.r}; a neighbourhood holds at least 1 position",
        )
        _refuse_unless(
            self.sharing != "three-way" or self.source_vocab_size in (None, self.vocab_size),
            f"model.source_vocab_size is {self.source_vocab_size} and model.vocab_size {self.vocab_size}; "
            'sharing = "three-way" needs one vocabulary: use "two-way" or "none"',
        )
        _refuse_unless(
            self.kernel != "varlen" or self.p_drop_attention == 0,
            f'model.kernel "varlen" has no attention dropout, but model.p_drop_attention is {self.p_drop_attention}; '
            'use kernel = "auto" or "sdpa"',
        )
        _refuse_unless(
            self.kernel != "varlen" or {self.d_k, self.d_v} <= VARLEN_HEADS,
            f'model.kernel "varlen" takes heads of 16, 32, 64 or 128, but model.d_k is {self.d_k} and model.d_v '
            f'{self.d_v}; use kernel = "auto" or "sdpa"',
        )
        _refuse_unless(self.norm_eps > 0, f"model.norm_eps is {self.norm_eps}; it must be positive")

    @property
    def pad(self) -> int:
        """The id of padding, and of the zero vector that starts a target: the last of the vocabulary."""
        return self.vocab_size - 1

    @property
    def source_pad(self) -> int:
        """The id of padding in a source: the last of its vocabulary."""
        return (self.source_vocab_size or self.vocab_size) - 1

    @property
    def decoder_layers(self) -> int:
        """The decoder's depth: N unless set apart."""
        return self.N if self.N_decoder is None else self.N_decoder


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """One corpus: two parallel files (or globs of them), or containers that hold both sides."""

    source: tuple[str, ...]  # paths or globs, next to the recipe unless absolute
    # Empty: the files of `source` hold both sides (TSV, JSONL, TMX, Parquet).
    target: tuple[str, ...] = ()
    name: str = ""  # how reports call it; empty: the first file's name
    weight: float = 1.0  # how often it is drawn, relative to its size

    def __post_init__(self) -> None:
        _as_tuples(self, "source", "target")
        _check(self, "data.corpora", {})
        _refuse_unless(
            len(self.source) > 0, "a corpus names no source file; expected source = ['train.en']"
        )
        _refuse_unless(
            len(self.target) in (0, len(self.source)),
            f"a corpus has {len(self.source)} source and {len(self.target)} target files; they must be parallel",
        )
        fine = 0 < self.weight < float("inf")
        _refuse_unless(fine, f"a corpus has weight {self.weight}; it must be positive and finite")


@dataclass(frozen=True, kw_only=True)
class CleanConfig:
    """What `doctor` counts and `prepare` drops: rules by name (see `data.cleaning.rules`) and their limits."""

    off: tuple[str, ...] = ()  # rules that neither count nor drop
    warn: tuple[str, ...] = ()  # rules that count but keep the pair
    drop: tuple[str, ...] = ()  # rules that drop the pair although they only warn by default
    min_letters: int = 1  # letters and digits of a side
    max_words: int = 250
    max_characters: int = 5_000
    # Longer side over shorter side, in words; three words more are always allowed.
    max_ratio: float = 3.0
    # From so many words on, one side equal to a test sentence is a leak; both sides always are.
    leak_words: int = 5
    language_sample: int = 20_000  # pairs whose language is identified; 0: every pair

    def __post_init__(self) -> None:
        _as_tuples(self, "off", "warn", "drop")
        least = dict.fromkeys(("max_words", "max_characters", "max_ratio"), 1)
        _check(
            self,
            "data.clean",
            least | dict.fromkeys(("min_letters", "leak_words", "language_sample"), 0),
        )
        _refuse_unless(
            "wrong-language" not in self.drop or self.language_sample == 0,
            "data.clean.drop names wrong-language, but only a sample of pairs is identified; set language_sample = 0",
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Text to token ids (§5.1: byte-pair encoding, shared by both languages)."""

    kind: Literal["bpe", "unigram"] = "bpe"
    vocab_size: int = 37_000
    joint: bool = True  # §5.1: one vocabulary for source and target
    character_coverage: float = 0.9995
    byte_fallback: bool = True
    # Every digit is a piece of its own: numbers are spelt, not memorized.
    split_digits: bool = False
    normalize_punctuation: bool = False
    # BPE-dropout rate (unigram: smoothing, the smaller the wilder) at training time; 0: off.
    sampling: float = 0.0
    # With sampling: segmentations of each training pair in the store; an epoch takes the next.
    variants: int = 8
    training_sentences: int = 1_000_000  # sampled from the corpus

    def __post_init__(self) -> None:
        _check(self, "data.tokenizer", {"vocab_size": 3, "variants": 1, "training_sentences": 1})
        _refuse_unless(
            0.98 <= self.character_coverage <= 1,
            f"data.tokenizer.character_coverage is {self.character_coverage}; SentencePiece takes 0.98 to 1",
        )
        _refuse_unless(
            0 <= self.sampling < 1, f"data.tokenizer.sampling is {self.sampling}; expected [0, 1)"
        )


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """From raw text to a token store."""

    source_language: str = "en"
    target_language: str = "de"
    corpora: tuple[CorpusConfig, ...] = ()
    validation: tuple[CorpusConfig, ...] = ()
    test: tuple[CorpusConfig, ...] = ()
    temperature: float = 1.0  # corpora are drawn in proportion to (weight x pairs)^(1/temperature)
    max_tokens: int = 512  # training pairs with more on a side are dropped, and counted
    clean: CleanConfig = field(default_factory=CleanConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        _as_tuples(self, "corpora", "validation", "test")
        _check(self, "data", {"max_tokens": 2})
        _refuse_unless(
            self.temperature > 0, f"data.temperature is {self.temperature}; it must be positive"
        )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the model learns (§5)."""

    steps: int = 100_000  # §5.2
    # §5.1: about so many source and so many target tokens, on all devices together.
    tokens_per_step: int = 25_000
    seed: int = 1
    eps_ls: float = 0.1  # §5.4
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # §5.3
    beta_1: float = 0.9
    beta_2: float = 0.98
    eps: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 0.0  # 0: no clipping, as in the paper
    schedule: Literal["paper", "stable-decay", "cosine"] = "paper"  # §5.3, Equation 3
    warmup_steps: int = 4_000
    learning_rate: float | None = None  # peak; None: the paper's, (d_model x warmup_steps)^-0.5
    # Auto: bf16 with float32 masters on a GPU that has it.
    precision: Literal["auto", "float32", "bf16"] = "auto"
    micro_batches: int = 0  # parts of a step on each device; 0: as few as fit into memory
    sharding: Literal["ddp", "fsdp"] = "ddp"  # over several devices: whole copies, or shards
    recompute: bool = False  # activation checkpointing: less memory, a third more time
    # Decay of a moving average of weights: the model, in place of a mean of checkpoints; 0: off.
    ema: float = 0.0
    # Steps, to metrics.jsonl and to a terminal; a log without one has fewer lines (scaling.md).
    report_every: int = 50
    validate_every: int = 1_000
    # Translated at each validation; 0: no translation, loss alone.
    validation_sentences: int = 1_000
    save_every: int = 1_000
    keep_checkpoints: int = 5
    average_checkpoints: int = 5  # §6.1: the mean of so many is the final model
    # Of which; best: by the score of a validation at the same step.
    average: Literal["last", "best"] = "last"
    # Stop after so many validations without a better score, however little better; 0: never.
    patience: int = 0
    until: str = ""  # stop at a score: "bleu=25", "chrf=55" or "loss=1.5"

    def __post_init__(self) -> None:
        counts = (
            "steps",
            "tokens_per_step",
            "warmup_steps",
            "report_every",
            "validate_every",
            "save_every",
        )
        _check(self, "training", dict.fromkeys(counts, 1))
        _refuse_unless(
            0 <= self.eps_ls < 1,
            f"training.eps_ls is {self.eps_ls}; label smoothing lies in [0, 1)",
        )
        for name in (
            "micro_batches",
            "weight_decay",
            "clip_norm",
            "validation_sentences",
            "patience",
        ):
            value = getattr(self, name)
            _refuse_unless(
                0 <= value < float("inf"),
                f"training.{name} is {value}; it must be at least 0, and finite",
            )
        _refuse_unless(
            self.micro_batches <= 1_024,
            f"training.micro_batches is {self.micro_batches:,}; more than 1,024 parts of a step are surely a mistake",
        )
        for name in ("ema", "beta_1", "beta_2"):
            value = getattr(self, name)
            _refuse_unless(0 <= value < 1, f"training.{name} is {value}; a decay lies in [0, 1)")
        for name in ("eps", "learning_rate"):
            value = getattr(self, name)
            fine = value is None or 0 < value < float("inf")
            _refuse_unless(fine, f"training.{name} is {value}; it must be positive and finite")
        _refuse_unless(
            0 <= self.seed < 2**63, f"training.seed is {self.seed}; expected 0 to 2^63 - 1"
        )
        _refuse_unless(
            1 <= self.average_checkpoints <= self.keep_checkpoints,
            f"training.average_checkpoints is {self.average_checkpoints} and training.keep_checkpoints "
            f"{self.keep_checkpoints}; only checkpoints that are kept can be averaged",
        )
        _refuse_unless(
            not self.goal or self.goal[0] == "loss" or self.validation_sentences > 0,
            f"training.until is {self.until!r}, but training.validation_sentences 0: nothing would be scored",
        )

    @property
    def goal(self) -> tuple[str, float] | None:
        """The score to stop at, from `until`."""
        if not self.until:
            return None
        name, _, value = self.until.partition("=")
        try:
            _refuse_unless(name in ("bleu", "chrf", "loss"), "")
            goal = float(value)
            _refuse_unless(0 < goal <= (float("inf") if name == "loss" else 100), "")
            return name, goal
        except (ValueError, ConfigError):
            message = (
                f'training.until is {self.until!r}; expected "bleu=25", "chrf=55" or "loss=1.5"'
            )
            raise ConfigError(message) from None


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How a translation is looked for (§6.1). Lengths count tokens before the end-of-sentence."""

    beam_size: int = 4  # 1: greedy
    alpha: float = 0.6  # length penalty: log P / ((5 + length) / 6)^alpha
    max_extra: int = 50  # output is at most this much longer than the input
    # A search is over when patience x beam_size hypotheses have ended; inf: when none can win.
    patience: float = 1.0
    n_best: int = 1  # hypotheses returned
    min_length: int = 0
    max_length: int | None = None  # None: only max_extra limits
    no_repeat_ngram: int = 0  # no n-gram of this size stands twice in an output; 0: off
    # No block of tokens, of whatever size, stands more often than this in a row; 0: off.
    max_repeats: int = 0
    forbid_unk: bool = False
    # 0: beam search; above: n_best independent samples of P^(1/temperature).
    temperature: float = 0.0
    top_k: int = 0  # sample from the k most probable tokens; 0: from all
    top_p: float = 1.0  # sample from the fewest tokens that hold this much probability
    seed: int = 1

    def __post_init__(self) -> None:
        counts = dict.fromkeys(
            ("max_extra", "min_length", "no_repeat_ngram", "max_repeats", "top_k", "seed"), 0
        )
        _check(
            self, "search", counts | {"beam_size": 1, "n_best": 1, "max_length": 1}, MOST_SEARCHED
        )
        _refuse_unless(
            0 <= self.alpha <= 10,  # else its power has no number
            f"search.alpha is {self.alpha}; expected 0 (no length penalty) to 10, such as the paper's 0.6",
        )
        _refuse_unless(
            self.max_length is None or self.min_length <= self.max_length,
            f"search.min_length is {self.min_length}, above search.max_length {self.max_length}; lower it",
        )
        _refuse_unless(
            0 <= self.temperature < float("inf"),
            f"search.temperature is {self.temperature}; expected 0 (beam search) or more, such as 1.0 (sampling)",
        )
        _refuse_unless(
            0 < self.top_p <= 1,
            f"search.top_p is {self.top_p}; a share of probability lies in (0, 1]",
        )
        _refuse_unless(
            self.temperature > 0 or (self.top_k == 0 and self.top_p == 1),
            "search.top_k and search.top_p are for sampling, but search.temperature is 0; set it to 1.0 to sample",
        )
        _refuse_unless(
            self.patience > 0,
            f"search.patience is {self.patience}; it must be positive, such as 1.0",
        )
        _refuse_unless(
            self.temperature > 0
            or self.n_best <= min(self.beam_size, self.patience * self.beam_size),
            f"search.n_best is {self.n_best}, but a beam of {self.beam_size} with patience {self.patience} "
            "may end with fewer hypotheses; raise search.beam_size",
        )

    @property
    def width(self) -> int:
        """Hypotheses that live side by side: the beam, or the samples."""
        return self.n_best if self.temperature > 0 else self.beam_size

    def limit(self, source_length: int) -> int:
        """The most tokens that may stand before the end-of-sentence, for a source of so many."""
        longest = source_length + self.max_extra
        return max(
            self.min_length, longest if self.max_length is None else min(longest, self.max_length)
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Recipe:
    """Everything a run needs to be repeated."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        _check(self, "recipe", {})

    def __repr__(self) -> str:
        """What differs from the paper's base model."""
        return f"Recipe({', '.join(_changes(self, Recipe(), ''))})"


def _changes(settings: Any, others: Any, where: str) -> Iterator[str]:
    for item in fields(settings):
        mine, theirs = getattr(settings, item.name), getattr(others, item.name)
        if is_dataclass(mine):
            yield from _changes(mine, theirs, f"{where}{item.name}.")
        elif mine != theirs:
            yield f"{where}{item.name}={mine!r}"
