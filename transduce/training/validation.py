"""How good the model is by now: loss and perplexity over the validation set, BLEU and chrF through the translator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from transduce.config import Recipe
from transduce.data.batches import Batch, Layout, in_order
from transduce.data.store import Store
from transduce.evaluation.scores import score
from transduce.kernels.accelerate import accelerate
from transduce.training.distributed import World
from transduce.training.loss import smoothed_loss
from transduce.training.prefetch import to_tokens
from transduce.training.signals import Signals
from transduce.training.step import teacher_forced
from transduce.translation.translator import Translator

SAMPLES = 4  # translations shown


@dataclass(frozen=True)
class Validation:
    """Scores; those that were not computed are NaN."""

    loss: float
    perplexity: float
    bleu: float
    chrf: float
    sources: list[str]
    references: list[str]
    hypotheses: list[str]

    @property
    def samples(self) -> list[tuple[str, str, str]]:
        """A few to look at, from all over the set."""
        stride = max(len(self.sources) // SAMPLES, 1)
        triples = zip(self.sources, self.references, self.hypotheses, strict=True)
        return list(triples)[::stride][:SAMPLES]

    def value(self, name: str) -> float:
        """A score, signed so that more is better."""
        return -self.loss if name == "loss" else float(getattr(self, name))

    @property
    def judged_by(self) -> str:
        """What says which of two validations is better."""
        return "loss" if math.isnan(self.bleu) else "bleu"


@torch.no_grad()
def validate(
    model: nn.Module, store: Store, recipe: Recipe, world: World, signals: Signals, layout: Layout
) -> Validation:
    """Scores on the validation set, the loss over all of it, the translations of the first sentences of each set.

    The model is the validation's own: it is rounded on the way.

    Each rank does a part of the work and has all of the results. A signal to any rank ends it on all.
    """
    model.eval()
    accelerate(model, world.device)
    section = store.validation
    pads = (store.source_tokenizer.pad, store.target_tokenizer.pad)
    sums = torch.zeros(2, dtype=torch.float64)
    room = max(min(recipe.training.tokens_per_step, 8_192), section.longest)
    batches = in_order(section, pads, room, layout)
    while one_each := list(islice(batches, world.size)):
        mine = one_each[world.rank : world.rank + 1]
        sums += signals.interruptible(partial(_loss, model, mine, world.device), world)
    total, tokens = world.total(sums).tolist()
    loss = total / tokens if tokens else math.nan
    sources, references, hypotheses = [], [], []
    bleu = chrf = math.nan
    limit = recipe.training.validation_sentences
    # Such a model has no words, and a search through it no end.
    if limit and not math.isfinite(loss):
        bleu = chrf = 0.0
    elif limit and section.pairs:
        each = -(-limit // len(section.corpora))
        for name in section.corpora:
            source_texts, target_texts = section.texts(name)
            sources += source_texts[:each]
            references += target_texts[:each]
        if world.device.type == "cuda":
            model = model.bfloat16()  # as a GPU translates unless told otherwise
        translator = Translator.from_model(
            model, store.source_tokenizer, store.target_tokenizer, recipe
        )

        def translate(texts: Sequence[str]) -> list[str]:
            found = signals.interruptible(lambda: translator.translate(list(texts)), world)
            return [translation.text for translation in found]

        # One rank is interrupted at any moment; several look for each other's signals every few seconds.
        portion = (
            len(sources)
            if world.size == 1
            else world.size * (128 if world.device.type == "cuda" else 16)
        )
        for start in range(0, len(sources), portion):
            hypotheses += world.share(sources[start : start + portion], translate)
        scores = score(hypotheses, references)
        bleu, chrf = scores.bleu.value, scores.chrf.value
    perplexity = math.exp(min(loss, 700)) if math.isfinite(loss) else math.nan
    return Validation(loss, perplexity, bleu, chrf, sources, references, hypotheses)


def _loss(model: Any, batches: Sequence[Batch], device: torch.device) -> Tensor:
    """Of one batch or none: the negative log-likelihood and the target tokens, (2,)."""
    sums = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        source, target = to_tokens(batch, device)
        logits = teacher_forced(model, source, target.shifted_right(model.config.pad))
        sums += torch.tensor(
            [float(smoothed_loss(logits, target.ids, 0.0)[1]), batch.target_tokens],
            dtype=sums.dtype,
        )
    return sums
