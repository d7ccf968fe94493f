"""All settings, as frozen dataclasses whose defaults are the paper's base model.

The comment of each setting is its reference documentation: `recipe_schema` shows it in editors.
A setting that cannot work raises a ConfigError that says what was found, what was expected and
what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from transduce.setting_checks import INFINITY, as_tuples, check_settings, refuse_unless

Positions = Literal["sinusoidal", "learned", "rotary", "none"]
Activation = Literal["relu", "gelu", "swish", "swiglu", "geglu"]
Sharing = Literal["three-way", "two-way", "none"]
Kernel = Literal["auto", "written-out", "sdpa", "varlen"]
VARLEN_HEADS = {16, 32, 64, 128, 256, 512}  # the values of d_k and d_v that varlen supports
LARGEST_WHOLE_HEAD = 128  # larger ones do not fit on the chip: varlen reads them in slices


def fits_tiles(d_k: int, d_v: int) -> bool:
    """Return whether attention with such heads can run in tiles (`kernels.varlen`)."""
    return {d_k, d_v} <= VARLEN_HEADS and (d_k == d_v or max(d_k, d_v) <= LARGEST_WHOLE_HEAD)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of the Transformer (§3), in the paper's symbols."""

    # Number of tokens (§5.1); training takes it from data.tokenizer.vocab_size, so set that one.
    # The last id is padding, which also starts every target.
    vocab_size: int = 37_000
    # Number of source tokens, from the tokenizer; none: both languages share one vocabulary (§5.1).
    source_vocab_size: int | None = None
    N: int = 6  # number of layers in the encoder, and in the decoder unless N_decoder is set (§3.1)
    N_decoder: int | None = None  # number of layers in the decoder; none: as many as the encoder
    d_model: int = 512  # size of the vector of each token between layers (§3.1)
    d_ff: int = 2048  # inner size of the feed-forward network (§3.3)
    h: int = 8  # number of attention heads (§3.2.2)
    d_k: int = 64  # size of the queries and keys of each head (§3.2.2)
    d_v: int = 64  # size of the values of each head (§3.2.2)
    # Dropout rate of sub-layer outputs and of the sum of embeddings and positions (§5.4); use
    # 0.1 for millions of pairs, 0.2 or 0.3 for fewer.
    p_drop: float = 0.1
    p_drop_attention: float = 0.0  # dropout rate of attention weights; the paper has none
    p_drop_activation: float = 0.0  # dropout rate inside the feed-forward network; the paper: none
    # Where LayerNorm goes: "post" is the paper's LayerNorm(x + Sublayer(x)) (§3.1), "pre" is
    # x + Sublayer(LayerNorm(x)), which trains more stably.
    norm_order: Literal["post", "pre"] = "post"
    norm: Literal["layer", "rms"] = "layer"  # kind of normalization: LayerNorm or RMSNorm
    norm_eps: float = 1e-5  # small constant that keeps the normalization from dividing by zero
    activation: Activation = "relu"  # activation of the feed-forward network (§3.3)
    positions: Positions = "sinusoidal"  # how positions enter the model (§3.5)
    max_positions: int = 1024  # longest sentence in tokens with positions = "learned"
    # Size of the neighbourhood that self-attention sees (§4); none: the whole sentence.
    r: int | None = None
    # Which embeddings are one matrix: "three-way" (source, target and output, §3.4), "two-way"
    # (target and output) or "none".
    sharing: Sharing = "three-way"
    # Whether the projections of attention have a bias; Table 3's parameter counts imply none.
    attention_bias: bool = False
    output_bias: bool = False  # whether the output projection has a bias
    # Implementation of attention (Equation 1); "auto" chooses the fastest one that fits.
    kernel: Kernel = "auto"

    def __post_init__(self) -> None:
        check_settings(self, "model")
        self._check_positions()

        refuse_unless(
            self.sharing != "three-way" or self.source_vocab_size in (None, self.vocab_size),
            f"model.source_vocab_size is {self.source_vocab_size} and model.vocab_size is "
            f'{self.vocab_size}, but sharing = "three-way" needs one vocabulary; '
            'set model.sharing to "two-way" or "none"',
        )
        refuse_unless(
            self.kernel != "varlen" or self.p_drop_attention == 0,
            'model.kernel "varlen" has no attention dropout, but model.p_drop_attention is '
            f'{self.p_drop_attention}; use kernel = "auto" or "sdpa"',
        )
        refuse_unless(
            self.kernel != "varlen" or fits_tiles(self.d_k, self.d_v),
            'model.kernel "varlen" takes heads of 16, 32, 64 or 128, and of 256 or 512 if d_k and '
            f"d_v are equal, but model.d_k is {self.d_k} and model.d_v is {self.d_v}; use kernel = "
            '"auto" or "sdpa"',
        )

    def _check_positions(self) -> None:
        """Refuse sizes that the chosen kind of positions cannot have."""
        if self.positions == "sinusoidal":
            refuse_unless(
                self.d_model % 2 == 0,
                f"model.d_model is {self.d_model}; sinusoidal positions pair sines with cosines "
                "and need an even d_model",
            )
        if self.positions == "rotary":
            refuse_unless(
                self.d_k % 2 == 0,
                f"model.d_k is {self.d_k}; rotary positions turn pairs of dimensions and need an "
                "even d_k",
            )
            refuse_unless(
                self.d_model % self.h == 0,
                f"model.h is {self.h}, which does not divide model.d_model {self.d_model}; "
                "rotary positions need a divisor",
            )

    @property
    def pad(self) -> int:
        """The id of padding, which also starts a target: the last id of the vocabulary."""
        return self.vocab_size - 1

    @property
    def source_pad(self) -> int:
        """The id of padding in a source: the last id of the source vocabulary."""
        return (self.source_vocab_size or self.vocab_size) - 1

    @property
    def decoder_layers(self) -> int:
        """The number of layers in the decoder."""
        return self.N if self.N_decoder is None else self.N_decoder

    @property
    def adds_positions(self) -> bool:
        """Whether positions are added to the embeddings, as in the paper (§3.5)."""
        return self.positions in ("sinusoidal", "learned")


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """One corpus: two parallel files (or globs), or files or folders with both languages."""

    source: tuple[str, ...]  # paths or globs of the source text, relative to the recipe's folder
    # Paths or globs of the target text, in the same order; empty: the files of `source`, or the
    # files of its folders, contain both languages (TSV, JSONL, TMX or Parquet).
    target: tuple[str, ...] = ()
    name: str = ""  # name of the corpus in reports; empty: the name of its first file
    weight: float = 1.0  # how often the corpus is drawn, relative to its size

    def __post_init__(self) -> None:
        as_tuples(self, "source", "target")
        check_settings(self, "data.corpora")
        refuse_unless(
            len(self.source) > 0,
            "a corpus has no source file; name at least one, such as source = ['train.en']",
        )
        refuse_unless(
            len(self.target) in (0, len(self.source)),
            f"a corpus has {len(self.source)} source and {len(self.target)} target files; "
            "name one target file for each source file",
        )


@dataclass(frozen=True, kw_only=True)
class CleanConfig:
    """Rules that `doctor` reports and that `prepare` uses to drop pairs (`data.cleaning.rules`)."""

    off: tuple[str, ...] = ()  # names of rules to switch off
    warn: tuple[str, ...] = ()  # names of rules that count a pair but keep it
    drop: tuple[str, ...] = ()  # names of rules that drop a pair although they only warn by default
    min_letters: int = 1  # fewest letters and digits that each side of a pair must have
    max_words: int = 250  # most words that a side may have
    max_characters: int = 5_000  # most characters that a side may have
    # Most words of the longer side per word of the shorter one; three more are always allowed.
    max_ratio: float = 3.0
    # A training pair leaks when both sides are in a test set, or when one side of at least this
    # many words is.
    leak_words: int = 5
    language_sample: int = 20_000  # number of pairs whose language is identified; 0: every pair

    def __post_init__(self) -> None:
        as_tuples(self, "off", "warn", "drop")
        check_settings(self, "data.clean")
        refuse_unless(
            "wrong-language" not in self.drop or self.language_sample == 0,
            "data.clean.drop names wrong-language, but the language of only "
            f"{self.language_sample:,} pairs is identified; set data.clean.language_sample = 0",
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text becomes token ids (§5.1: byte-pair encoding, shared by both languages)."""

    # Algorithm: byte-pair encoding, a unigram model, or whole words. With words, a rare word is
    # unknown and lost: this is for text whose words are tokens already, such as trees (§6.3).
    kind: Literal["bpe", "unigram", "word"] = "bpe"
    # Number of pieces (§5.1), which is also the model's vocabulary size: about 4,000 for 10,000
    # pairs, 16,000 for 100,000 pairs and 32,000 for millions.
    vocab_size: int = 37_000
    joint: bool = True  # whether source and target share one vocabulary (§5.1)
    # Share of the characters of the text that are pieces, from 0.98 to 1; the rest are bytes. With
    # 0.9995, rare capitals have no piece, such as Ö in German text. Scripts with thousands of
    # characters may need less where the vocabulary is small.
    character_coverage: float = 0.9999
    byte_fallback: bool = True  # whether a character without a piece is written as bytes
    split_digits: bool = False  # whether each digit is a piece, so that numbers are spelled out
    normalize_punctuation: bool = False  # whether quotes, dashes and spaces are made uniform
    # Rate of random segmentation during training: the BPE-dropout rate, or with unigram the
    # smoothing (smaller is more random); 0: off.
    sampling: float = 0.0
    # With sampling, the number of segmentations of each pair; epochs take them in turn.
    variants: int = 8
    training_sentences: int = 1_000_000  # number of sentences from which the tokenizer is learned

    def __post_init__(self) -> None:
        check_settings(self, "data.tokenizer")
        refuse_unless(
            self.kind != "word" or not self.sampling,
            f"data.tokenizer.sampling is {self.sampling:g}, but words have one segmentation only; "
            "set it to 0",
        )


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text, and how it becomes a token store."""

    source_language: str = "en"  # language code of the source text
    target_language: str = "de"  # language code of the target text
    corpora: tuple[CorpusConfig, ...] = ()  # training text
    validation: tuple[CorpusConfig, ...] = ()  # text that measures progress during training
    test: tuple[CorpusConfig, ...] = ()  # text that is kept out of the training text
    # A corpus is drawn in proportion to (weight x pairs)^(1/temperature).
    temperature: float = 1.0
    max_tokens: int = 512  # training pairs with more tokens on a side are dropped
    # Share of the training pairs that are added in capitals, and of those that are added with a
    # source in lower case; at most 0.5.
    case_variants: float = 0.0
    # Rules that drop bad pairs.
    clean: CleanConfig = field(default_factory=CleanConfig)
    # How text becomes token ids.
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        as_tuples(self, "corpora", "validation", "test")
        check_settings(self, "data")

    @property
    def direction(self) -> str:
        """The languages in words, such as "from en to de"."""
        return f"from {self.source_language} to {self.target_language}"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the model learns (§5)."""

    steps: int = 100_000  # number of training steps (§5.2)
    # Number of source tokens, and of target tokens, in each step on all devices together (§5.1).
    tokens_per_step: int = 25_000
    seed: int = 1  # seed of initial weights, dropout and the order of the data
    eps_ls: float = 0.1  # label smoothing (§5.4)
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # the optimizer (§5.3)
    beta_1: float = 0.9  # decay of Adam's mean of gradients (§5.3)
    beta_2: float = 0.98  # decay of Adam's mean of squared gradients (§5.3)
    eps: float = 1e-9  # Adam's constant against division by zero (§5.3)
    weight_decay: float = 0.0  # weight decay of the optimizer (with adam: an L2 penalty); 0: none
    clip_norm: float = 0.0  # largest norm of the gradient; 0: no clipping, as in the paper
    # Learning rate over time: "paper" is Equation 3 (§5.3), "stable-decay" is constant with a
    # decay at the end, "cosine" falls along a cosine to zero.
    schedule: Literal["paper", "stable-decay", "cosine"] = "paper"
    warmup_steps: int = 4_000  # number of steps in which the learning rate rises (§5.3)
    # Highest learning rate; none: the paper's (d_model x warmup_steps)^-0.5.
    learning_rate: float | None = None
    # Numeric precision; "auto" uses bf16 on a GPU or a CPU that has it and float32 otherwise. The
    # weights that the optimizer updates are always float32.
    precision: Literal["auto", "float32", "bf16"] = "auto"
    # Number of parts into which each device divides a step; 0: as few as fit into memory.
    micro_batches: int = 0
    # Over several devices: "ddp" has a copy of the model on each, "fsdp" a part of it.
    sharding: Literal["ddp", "fsdp"] = "ddp"
    # Activation checkpointing: less memory, but about a third more time.
    recompute: bool = False
    # Decay of an exponential moving average of the weights, which replaces the average of
    # checkpoints; 0: off.
    ema: float = 0.0
    # Number of steps between reports in metrics.jsonl and on a terminal; a log that is not a
    # terminal gets fewer lines.
    report_every: int = 50
    validate_every: int = 1_000  # number of steps between validations
    # Number of sentences to translate in a validation; 0: compute the loss only.
    validation_sentences: int = 1_000
    save_every: int = 1_000  # number of steps between checkpoints
    # Number of steps between checkpoints before the last ones, whose average is the final model;
    # 0: save_every.
    early_save_every: int = 0
    keep_checkpoints: int = 5  # number of checkpoints to keep on disk
    average_checkpoints: int = 5  # number of checkpoints whose average is the final model (§6.1)
    # Which checkpoints are averaged: the last ones, or those with the best validation score.
    average: Literal["last", "best"] = "last"
    # Stop after this many validations in a row without a better score; 0: never.
    patience: int = 0
    until: str = ""  # stop at a validation score: "bleu=25", "chrf=55" or "loss=1.5"; empty: never

    def __post_init__(self) -> None:
        check_settings(self, "training")
        refuse_unless(
            self.average_checkpoints <= self.keep_checkpoints,
            f"training.average_checkpoints is {self.average_checkpoints}, but "
            f"training.keep_checkpoints is {self.keep_checkpoints}; keep at least as many as are "
            "averaged",
        )
        refuse_unless(
            not self.goal or self.goal[0] == "loss" or self.validation_sentences > 0,
            f"training.until is {self.until!r}, but training.validation_sentences is 0, so that "
            "no translation is scored; set it to 1000",
        )

    @property
    def goal(self) -> tuple[str, float] | None:
        """The name and value of the score in `until`, or None."""
        if not self.until:
            return None
        name, _, text = self.until.partition("=")
        try:
            goal = float(text)
        except ValueError:
            goal = float("nan")
        possible = 0 < goal <= (INFINITY if name == "loss" else 100)
        refuse_unless(
            name in ("bleu", "chrf", "loss") and possible,
            f'training.until is {self.until!r}; expected "bleu=25", "chrf=55" or "loss=1.5"',
        )
        return name, goal


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How translations are found (§6.1). Lengths count tokens without the end-of-sentence."""

    beam_size: int = 4  # number of hypotheses that beam search keeps; 1: greedy search
    # Strength of the length penalty log P / ((5 + length) / 6)^alpha; 0: none, higher: longer.
    alpha: float = 0.6
    max_extra: int = 50  # an output has at most this many tokens more than its input
    # Beam search stops when patience x beam_size hypotheses have ended; inf: when no other
    # hypothesis can still win.
    patience: float = 1.0
    n_best: int = 1  # number of translations to return
    min_length: int = 1  # fewest tokens of an output; 0 allows an empty one
    max_length: int | None = None  # most tokens of an output; none: only max_extra limits it
    no_repeat_ngram: int = 0  # no n-gram of this size occurs twice in an output; 0: off
    # No sequence of tokens occurs more often than this in a row; 0: off.
    max_repeats: int = 0
    forbid_unk: bool = False  # whether outputs may not contain the unknown token
    # Randomness of sampling: draw n_best samples from P^(1/temperature); 0: beam search.
    temperature: float = 0.0
    top_k: int = 0  # sample from the k most probable tokens only; 0: from all
    top_p: float = 1.0  # sample from the fewest tokens that have this total probability
    seed: int = 1  # seed of sampling
    # Whether CTranslate2 considers only the tokens of the model's shortlist, if it has one.
    shortlist: bool = True

    def __post_init__(self) -> None:
        check_settings(self, "search")
        refuse_unless(
            self.max_length is None or self.min_length <= self.max_length,
            f"search.min_length is {self.min_length}, but search.max_length is "
            f"{self.max_length}; lower search.min_length",
        )

        # Sampling and beam search have settings that exclude each other.
        refuse_unless(
            self.temperature > 0 or (self.top_k == 0 and self.top_p == 1),
            "search.top_k and search.top_p are for sampling, but search.temperature is 0; "
            "set it to 1.0 to sample",
        )
        sure_hypotheses = min(self.beam_size, self.patience * self.beam_size)
        refuse_unless(
            self.temperature > 0 or self.n_best <= sure_hypotheses,
            f"search.n_best is {self.n_best}, but a beam of {self.beam_size} with patience "
            f"{self.patience} may end with fewer hypotheses; raise search.beam_size",
        )

    @property
    def width(self) -> int:
        """The number of hypotheses that are searched together: the beam, or the samples."""
        return self.n_best if self.temperature > 0 else self.beam_size

    def limit(self, source_length: int) -> int:
        """Return the most tokens before the end-of-sentence, for a source of that length."""
        longest = source_length + self.max_extra
        if self.max_length is not None:
            longest = min(longest, self.max_length)
        return max(self.min_length, longest)


@dataclass(frozen=True, kw_only=True, repr=False)
class Recipe:
    """All settings that are needed to repeat a training run."""

    # The shape of the Transformer.
    model: ModelConfig = field(default_factory=ModelConfig)
    # The text, and how it becomes token ids.
    data: DataConfig = field(default_factory=DataConfig)
    # How the model learns.
    training: TrainingConfig = field(default_factory=TrainingConfig)
    # How translations are found.
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        check_settings(self, "recipe")

    def __repr__(self) -> str:
        """Show the settings that differ from the paper's base model."""
        return f"Recipe({', '.join(_changes(self, Recipe(), ''))})"


def _changes(settings: Any, others: Any, prefix: str) -> Iterator[str]:
    for item in fields(settings):
        value = getattr(settings, item.name)
        other = getattr(others, item.name)
        if is_dataclass(value):
            yield from _changes(value, other, f"{prefix}{item.name}.")
        elif value != other:
            yield f"{prefix}{item.name}={value!r}"
