"""The importance of each head: how a test set's loss or BLEU changes when the head is removed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from transduce.engines.torch import TorchEngine, log_probabilities
from transduce.errors import InputError
from transduce.evaluation.scores import score
from transduce.inspection.heads import Head, Kind, all_heads, attentions, switched_off
from transduce.inspection.models import torch_engine
from transduce.inspection.result import Array
from transduce.model import PADDING_SEGMENT, Tokens
from transduce.translation.translator import Translator

Measure = Literal["loss", "bleu"]
BATCH_TOKENS = 2048  # of source and target, with padding
Pair = tuple[list[int], list[int]]  # token ids of a source and its reference


@dataclass(frozen=True)
class Importance:
    """How much worse a test set becomes without each head.

    `changes` has an array (layers, h) for each kind of attention. Harm is positive: the rise of the
    loss, or the fall of BLEU.
    """

    by: Measure
    full: float  # with all heads: nats per target token, or BLEU
    changes: dict[Kind, Array]
    sentences: int

    def ranked(self) -> list[tuple[Head, float]]:
        """Return all heads and their changes, the most important first."""
        heads = []
        for kind, values in self.changes.items():
            for (layer, index), value in np.ndenumerate(values):
                heads.append((Head(kind, layer + 1, index + 1), float(value)))
        return sorted(heads, key=lambda pair: pair[1], reverse=True)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        changes = {kind: values.round(6).tolist() for kind, values in self.changes.items()}
        return {
            "by": self.by,
            "full": round(self.full, 6),
            "sentences": self.sentences,
            "changes": changes,
        }


def head_importance(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    by: Measure = "loss",
    advance: Callable[[int], None] = lambda _: None,
) -> Importance:
    """Remove each head once and measure the change on a test set; see `Importance`.

    Args:
        translator: A translator with any engine; it is measured in float32 on the CPU.
        sources: The sentences.
        references: Their translations.
        by: "loss" compares with the references, which is fast; "bleu" translates the whole test set
            once for each head.
        advance: Called with 1 after each head, and once for the model with all heads.
    """
    if not sources or len(sources) != len(references):
        raise InputError(
            f"{len(sources):,} sources and {len(references):,} references; expected at least one "
            "sentence, and a reference for each"
        )
    with torch_engine(translator).exclusive() as models, torch.inference_mode():
        if by == "bleu":
            measure = _bleu_of(translator, models, sources, references)
            sign = -1.0
        else:
            measure = _loss_of(translator, models, sources, references)
            sign = 1.0
        full = measure(None)
        advance(1)

        model = models[0]
        changes: dict[Kind, Array] = {}
        for kind, modules in attentions(model).items():
            most = max(attention.h for attention in modules)
            changes[kind] = np.zeros((len(modules), most), dtype=np.float32)
        for head in all_heads(model):
            with switched_off(model, [head]):
                change = sign * (measure(head) - full)
            changes[head.kind][head.layer - 1, head.index - 1] = change
            advance(1)
    return Importance(by, full, changes, len(sources))


def _bleu_of(
    translator: Translator,
    models: Sequence[Any],
    sources: Sequence[str],
    references: Sequence[str],
) -> Callable[[Head | None], float]:
    """Return a function that gives the BLEU of the models as they are when it is called."""
    now = copy.copy(translator)
    now.engine = TorchEngine(*models)

    def bleu(_: Head | None) -> float:
        translations = [translation.text for translation in now.translate([*sources])]
        return score(translations, references).bleu.value

    return bleu


def _loss_of(
    translator: Translator,
    models: Sequence[Any],
    sources: Sequence[str],
    references: Sequence[str],
) -> Callable[[Head | None], float]:
    """Return a function that gives the loss of the model as it is when it is called.

    The loss is the cross-entropy of the references in nats per token. Sources are encoded again
    only if a head of the encoder is off.
    """
    if len(models) > 1:
        raise InputError(
            f"the loss of an ensemble of {len(models)} models is not defined; give one model, or "
            "choose bleu"
        )
    model = models[0]
    reader, writer = translator.tokenizers
    pairs = zip(reader.encode_batch(sources), writer.encode_batch(references), strict=True)
    batches: list[tuple[Tokens, Tokens]] = []
    for batch in _batches(list(pairs)):
        source = Tokens.padded([source for source, _ in batch], model.config.source_pad)
        target = Tokens.padded([target for _, target in batch], model.config.pad)
        batches.append((source, target))
    encoded = [model.encode(source) for source, _ in batches]
    tokens = sum(int(_is_token(target).sum()) for _, target in batches)

    def loss(head: Head | None) -> float:
        losses = []
        for (source, target), state in zip(batches, encoded, strict=True):
            in_encoder = head is not None and head.kind == "encoder"
            losses.append(_loss(model, target, model.encode(source) if in_encoder else state))
        return math.fsum(losses) / tokens

    return loss


def _loss(model: Any, target: Tokens, state: Any) -> float:
    """Return the sum of the loss over the tokens of a batch."""
    logits, _ = model.decode(target.shifted_right(model.config.pad), state)
    log_probs = log_probabilities(logits.flatten(0, 1))
    chosen = log_probs.gather(1, target.ids.long().flatten()[:, None])[:, 0]
    return -float(chosen[_is_token(target).flatten()].double().sum())


def _is_token(target: Tokens) -> Tensor:
    return target.segments != PADDING_SEGMENT


def _batches(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Yield batches of pairs of similar length."""
    waiting = sorted(pairs, key=lambda pair: max(map(len, pair)), reverse=True)
    while waiting:
        longest = max(map(len, waiting[0]))
        size = max(1, BATCH_TOKENS // (2 * longest))
        yield waiting[:size]
        waiting = waiting[size:]
