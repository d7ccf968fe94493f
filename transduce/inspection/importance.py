"""The importance of each head: how a test set's loss or BLEU changes when the head is removed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from transduce.engines.torch import TorchEngine
from transduce.errors import InputError
from transduce.evaluation.perplexity import batches_of_similar_length, loss_sum
from transduce.evaluation.scores import score
from transduce.inspection.heads import Head, Kind, all_heads, attentions, switched_off
from transduce.inspection.models import torch_engine
from transduce.inspection.recording import replaced
from transduce.inspection.result import Array
from transduce.model import Tokens
from transduce.translation.translator import Translator

Measure = Literal["loss", "bleu"]
BATCH_TOKENS = 2048  # of source and target, with padding
Advance = Callable[[int], None]


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
    advance: Advance = lambda _: None,
) -> Importance:
    """Remove each head once and measure the change on a test set; see `Importance`.

    Args:
        translator: A translator with any engine; it is measured in float32 on the CPU.
        sources: The sentences.
        references: Their translations.
        by: "loss" compares with the references, which is fast; "bleu" translates the whole test set
            once for each head.
        advance: Called with the number of sentences that were done: each of them once with all
            heads, and once without each head.
    """
    if not sources or len(sources) != len(references):
        raise InputError(
            f"{len(sources):,} sources and {len(references):,} references; expected at least one "
            "sentence, and a reference for each"
        )
    with torch_engine(translator).exclusive() as models, torch.inference_mode():
        measure = _losses if by == "loss" else _bleus
        full, values = measure(translator, models, sources, references, advance)
        changes: dict[Kind, Array] = {}
        for kind, modules in attentions(models[0]).items():
            most = max(attention.h for attention in modules)
            changes[kind] = np.zeros((len(modules), most), dtype=np.float32)

    for head, value in values.items():
        change = value - full if by == "loss" else full - value
        changes[head.kind][head.layer - 1, head.index - 1] = change
    return Importance(by, full, changes, len(sources))


def _bleus(
    translator: Translator,
    models: Sequence[Any],
    sources: Sequence[str],
    references: Sequence[str],
    advance: Advance,
) -> tuple[float, dict[Head, float]]:
    """Return BLEU with all heads, and without each one."""
    as_it_is = copy.copy(translator)
    as_it_is.engine = TorchEngine(*models)

    def bleu() -> float:
        translations = [translation.text for translation in as_it_is.translate([*sources])]
        advance(len(sources))
        return score(translations, references).bleu.value

    full = bleu()
    values = {}
    for head in all_heads(models[0]):
        with switched_off(models[0], [head]):
            values[head] = bleu()
    return full, values


def _losses(
    translator: Translator,
    models: Sequence[Any],
    sources: Sequence[str],
    references: Sequence[str],
    advance: Advance,
) -> tuple[float, dict[Head, float]]:
    """Return the loss with all heads, and without each one.

    The loss is the cross-entropy of the references in nats per token. Layers below a head do not
    notice that it is off, so they are computed once for each batch.
    """
    if len(models) > 1:
        raise InputError(
            f"the loss of an ensemble of {len(models)} models is not defined; give one model, or "
            "choose bleu"
        )
    model = models[0]
    reader, writer = translator.tokenizers
    pairs = zip(reader.encode_batch(sources), writer.encode_batch(references), strict=True)
    full = 0.0
    tokens = 0
    values = dict.fromkeys(all_heads(model), 0.0)
    for batch in batches_of_similar_length(list(pairs), BATCH_TOKENS):
        source = Tokens.padded([source for source, _ in batch], model.config.source_pad)
        target = Tokens.padded([target for _, target in batch], model.config.pad)
        tokens += sum(len(target) for _, target in batch)

        # With all heads, and then without each one.
        with _outputs_of_layers(model) as outputs:
            state = model.encode(source)
            full += _loss(model, target, state)
        advance(len(batch))
        for head in values:
            layers = model.encoder if head.kind == "encoder" else model.decoder
            with switched_off(model, [head]), _known(layers[: head.layer - 1], outputs):
                used = model.encode(source) if head.kind == "encoder" else state
                values[head] += _loss(model, target, used)
            advance(len(batch))
    return full / tokens, {head: value / tokens for head, value in values.items()}


@contextmanager
def _outputs_of_layers(model: Any) -> Iterator[dict[nn.Module, list[Any]]]:
    """Collect what each layer of a model returns, before any hooks, until the block ends."""
    outputs: dict[nn.Module, list[Any]] = {layer: [] for layer in (*model.encoder, *model.decoder)}

    def collecting(layer: nn.Module, forward: Any) -> Any:
        def collected(*inputs: Any, **options: Any) -> Any:
            output = forward(*inputs, **options)
            outputs[layer].append(output)
            return output

        return collected

    with ExitStack() as undo:
        for layer in outputs:
            method = collecting(layer, layer.forward)
            undo.enter_context(replaced(layer, "forward", method))
        yield outputs


@contextmanager
def _known(layers: Iterable[nn.Module], outputs: Mapping[nn.Module, list[Any]]) -> Iterator[None]:
    """Let layers return what they returned before. A layer that ran several times runs again."""
    with ExitStack() as undo:
        for layer in layers:
            if len(outputs[layer]) == 1:
                method = partial(_return, outputs[layer][0])
                undo.enter_context(replaced(layer, "forward", method))
        yield


def _return(output: Any, *_: Any, **__: Any) -> Any:
    return output


def _loss(model: Any, target: Tokens, state: Any) -> float:
    """Return the sum of the loss over the tokens of a batch."""
    logits, _ = model.decode(target.shifted_right(model.config.pad), state)
    return loss_sum(logits, target)
