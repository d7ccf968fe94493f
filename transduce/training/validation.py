"""Validation: loss and perplexity on the validation set, BLEU and chrF of translations of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from transduce.config import Recipe
from transduce.data.batches import Batch, Layout, in_order
from transduce.data.store import Section, Store
from transduce.engines.model_calls import teacher_forced
from transduce.engines.self_check import search_difference
from transduce.engines.torch import TorchEngine
from transduce.evaluation.scores import score
from transduce.kernels.accelerate import accelerate
from transduce.training.distributed import World
from transduce.training.loss import smoothed_loss
from transduce.training.prefetch import to_tokens
from transduce.training.signals import Signals
from transduce.translation.translator import Translator

CHECKED = 4  # sentences that are searched and also scored by the plain model
LONGEST_CHECKED = 64  # tokens of such a sentence
SAMPLES = 4  # translations to show
MOST_TOKENS = 8_192  # in a validation batch


@dataclass(frozen=True)
class Validation:
    """The scores of one validation; a score that was not computed is NaN."""

    loss: float
    perplexity: float
    bleu: float
    chrf: float
    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    signature: str = ""  # of BLEU: which sacreBLEU, and how it was computed

    @property
    def samples(self) -> list[tuple[str, str, str]]:
        """A few translations to show, spread over the validation set."""
        stride = max(len(self.sources) // SAMPLES, 1)
        triples = zip(self.sources, self.references, self.hypotheses, strict=True)
        return list(triples)[::stride][:SAMPLES]

    def value(self, name: str) -> float:
        """Return a score, signed so that higher is better."""
        return -self.loss if name == "loss" else float(getattr(self, name))

    @property
    def metric(self) -> str:
        """The score that decides which of two validations is better."""
        return "loss" if math.isnan(self.bleu) else "bleu"


@torch.no_grad()
def validate(
    model: nn.Module,
    store: Store,
    recipe: Recipe,
    world: World,
    signals: Signals,
    layout: Layout,
    *,
    test: bool = False,
) -> Validation:
    """Score a model: the loss on the whole validation set, translations of its first sentences.

    With `test`, all sentences of the test set are used instead. The model is changed: pass a copy.
    The ranks share the work, and each gets all results. A signal to any rank raises `Interrupted`
    on all.
    """
    # The loss on the whole set.
    section = store.test if test else store.validation
    model.eval()
    accelerate(model, world.device)
    loss = _section_loss(model, section, store, recipe, world, signals, layout)
    perplexity = math.exp(min(loss, 700)) if math.isfinite(loss) else math.nan

    # Translations of the first sentences.
    sources: list[str] = []
    references: list[str] = []
    hypotheses: list[str] = []
    signature = ""
    bleu = chrf = math.nan
    limit = section.pairs if test else recipe.training.validation_sentences
    if limit and not math.isfinite(loss):
        # A model whose logits are not finite produces no words, and its search would not end.
        bleu = chrf = 0.0
    elif limit and section.pairs:
        sources, references = _first_sentences(section, limit)
        hypotheses = _translate(model, sources, store, recipe, world, signals)
        # Every rank has all translations, and computes the same scores.
        scores = score(hypotheses, references)
        bleu = scores.bleu.value
        chrf = scores.chrf.value
        signature = scores.bleu.signature
    return Validation(loss, perplexity, bleu, chrf, sources, references, hypotheses, signature)


def check_search(build: Callable[[], Any], store: Store, device: torch.device) -> str | None:
    """Return how translations are searched otherwise than the model is trained, or None.

    `build` makes a copy of the model. One is searched as in a validation, the other is the oracle.
    """
    sources, _ = _first_sentences(store.validation, CHECKED)
    ids = [tokens[:LONGEST_CHECKED] for tokens in store.source_tokenizer.encode_batch(sources)]
    searched = build().eval()
    plain = build().eval()
    if device.type == "cuda":
        searched = searched.bfloat16()
        plain = plain.bfloat16()
    return search_difference(TorchEngine(searched, device=device), plain, ids)


def _section_loss(
    model: nn.Module,
    section: Section,
    store: Store,
    recipe: Recipe,
    world: World,
    signals: Signals,
    layout: Layout,
) -> float:
    """Return the negative log-likelihood per target token; NaN if the section has no pairs."""
    pads = (store.source_tokenizer.pad, store.target_tokenizer.pad)
    room = max(min(recipe.training.tokens_per_step, MOST_TOKENS), section.longest)
    batches = in_order(section, pads, room, layout)

    # Each rank takes one batch of every round; after a round the ranks look for signals.
    sums = torch.zeros(2, dtype=torch.float64)
    while round_of_batches := list(islice(batches, world.size)):
        own_batch = round_of_batches[world.rank : world.rank + 1]
        compute = partial(_loss, model, own_batch, world.device)
        sums += signals.run_interruptible(compute, world)
    nll, tokens = world.total(sums).tolist()
    return nll / tokens if tokens else math.nan


def _loss(model: Any, batches: Sequence[Batch], device: torch.device) -> Tensor:
    """Return the negative log-likelihood and the target tokens of the batches, (2,)."""
    sums = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        source, target = to_tokens(batch, device)
        logits = teacher_forced(model, source, target.shifted_right(model.config.pad))
        nll = float(smoothed_loss(logits, target.ids, 0.0)[1])
        sums += torch.tensor([nll, batch.target_tokens], dtype=sums.dtype)
    return sums


def _first_sentences(section: Section, limit: int) -> tuple[list[str], list[str]]:
    """Return the first sentences of each set and their references, about `limit` in all."""
    sources: list[str] = []
    references: list[str] = []
    # The sets share the limit equally, rounded up, unless it allows all sentences.
    per_corpus = -(-limit // len(section.corpora)) if limit < section.pairs else limit
    for name in section.corpora:
        source_texts, target_texts = section.texts(name)
        sources += source_texts[:per_corpus]
        references += target_texts[:per_corpus]
    return sources, references


def _translate(
    model: nn.Module,
    sources: Sequence[str],
    store: Store,
    recipe: Recipe,
    world: World,
    signals: Signals,
) -> list[str]:
    on_gpu = world.device.type == "cuda"
    if on_gpu:
        model = model.bfloat16()  # the precision in which a GPU translates by default
    translator = Translator.from_model(
        model, store.source_tokenizer, store.target_tokenizer, recipe
    )

    def translate(texts: Sequence[str]) -> list[str]:
        translations = signals.run_interruptible(lambda: translator.translate(list(texts)), world)
        return [translation.text for translation in translations]

    # A single process can be interrupted at any moment. Several ranks work in portions of a few
    # seconds, and look for signals to other ranks after each.
    portion = len(sources)
    if world.size > 1:
        portion = world.size * (128 if on_gpu else 16)
    hypotheses: list[str] = []
    for start in range(0, len(sources), portion):
        hypotheses += world.share(sources[start : start + portion], translate)
    return hypotheses
