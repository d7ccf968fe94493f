"""Perplexity: how well a model predicts the references, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.engines.model_calls import log_probabilities, teacher_forced
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import InputError
from transduce.model import PADDING_SEGMENT, Tokens
from transduce.translation.translator import Translator

BATCH_TOKENS = 4096  # of source and target, with padding
Pair = tuple[list[int], list[int]]  # token ids of a source and its reference


@dataclass(frozen=True)
class Perplexity:
    """The perplexity per token of the model's own tokenizer, as in Table 3 of the paper.

    Models with different tokenizers cannot be compared by it.
    """

    value: float
    loss: float  # nats per token
    tokens: int  # of all references, with the ends of sentences
    left_out: int = 0  # pairs that are longer than the positions of the model


def measure_perplexity(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> Perplexity:
    """Return the perplexity of the references, given the sources; in float32 for a bundle.

    Args:
        translator: A translator with one model.
        sources: The sentences; each is read as one, however long it is.
        references: Their translations.
        advance: Called with the number of sentences that were just read.
    """
    reader, writer = translator.tokenizers
    ids = zip(reader.encode_batch([*sources]), writer.encode_batch([*references]), strict=True)
    losses = []
    tokens = 0
    with _model_of(translator) as model, torch.inference_mode():
        longest = _longest(model)
        pairs = [*ids]
        readable = [pair for pair in pairs if max(map(len, pair)) <= longest]
        if not readable:
            raise InputError(
                f"all {len(pairs):,} pairs are longer than the {longest:g} positions of the model, "
                "so it has no perplexity; give shorter sentences"
            )
        for batch in batches_of_similar_length(readable, BATCH_TOKENS):
            losses.append(_loss(model, batch))
            tokens += sum(len(target) for _, target in batch)
            advance(len(batch))
    loss = math.fsum(losses) / tokens
    return Perplexity(math.exp(min(loss, 700)), loss, tokens, len(pairs) - len(readable))


@contextmanager
def _model_of(translator: Translator) -> Iterator[Any]:
    """Give the translator's model: that of its bundle in float32, or the user's own."""
    engine = translator.engine
    models = engine.models if isinstance(engine, TorchEngine) else ()
    if len(models) > 1:
        raise InputError(
            f"the perplexity of an ensemble of {len(models)} models is not defined; give one model"
        )
    bundle = translator.bundle
    if isinstance(engine, TorchEngine) and (bundle is None or bundle.own_model):
        with engine.exclusive() as (model,):
            yield model
        return
    if bundle is None:
        raise InputError(
            f"the engine {type(engine).__name__} has no model in torch, so it has no perplexity; "
            "use a Translator with a bundle"
        )
    yield load_model(bundle, engine.device if isinstance(engine, TorchEngine) else "cpu")


def _loss(model: Any, batch: Sequence[Pair]) -> float:
    """Return the sum of the loss over the target tokens of a batch of pairs."""
    device = next(model.parameters()).device
    source = Tokens.padded([source for source, _ in batch], model.config.source_pad).to(device)
    target = Tokens.padded([target for _, target in batch], model.config.pad).to(device)
    inputs = target.shifted_right(model.config.pad)
    return loss_sum(teacher_forced(model, source, inputs), target)


def loss_sum(logits: Tensor, target: Tokens) -> float:
    """Return the sum of the negative log-likelihood over the tokens:  (B, T, V), (B, T) -> nats."""
    log_probs = log_probabilities(logits.flatten(0, 1))  # (B T, V)
    chosen = log_probs.gather(1, target.ids.long().flatten()[:, None])[:, 0]
    is_token = (target.segments != PADDING_SEGMENT).flatten()
    return -float(chosen[is_token].double().sum())


def _longest(model: Any) -> float:
    """Return the most tokens that a sequence may have: a model cannot read beyond its positions."""
    config = model.config
    return float(config.max_positions) if config.positions == "learned" else math.inf


def batches_of_similar_length(pairs: Sequence[Pair], batch_tokens: int) -> Iterator[list[Pair]]:
    """Yield all pairs in batches, the longest first; a batch has so many tokens with padding."""
    waiting = sorted(pairs, key=lambda pair: max(map(len, pair)), reverse=True)
    while waiting:
        size = max(1, batch_tokens // (2 * max(map(len, waiting[0]))))
        yield waiting[:size]
        waiting = waiting[size:]
