"""`transduce.inspect` and `transduce.ablate`: what happened inside the translation of a sentence.

The sentence is searched as in any translation. The attention is recorded in one more pass over the
translation that was found. All of it is computed in float32 on the CPU, by the model in torch, also
if the translator itself uses CTranslate2 or a GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.engines.torch import TorchEngine
from transduce.errors import InputError
from transduce.inspection.description import (
    describe_beam,
    describe_sides,
    describe_steps,
    find_links,
)
from transduce.inspection.heads import Head, attentions, find_heads, switched_off
from transduce.inspection.measures import measure
from transduce.inspection.models import torch_engine
from transduce.inspection.recording import Recording, recording
from transduce.inspection.replay import Search, replay, run_search
from transduce.inspection.result import Array, Inspection, ModelFacts
from transduce.translation.reading import SourceSentence
from transduce.translation.result import Translation
from transduce.translation.translator import Translator


def inspect(
    translator: Translator, text: str, *, sentence: int = 0, without: Iterable[str] = ()
) -> Inspection:
    """Translate one sentence and return what the model and the search did.

    Args:
        translator: A translator with any engine. Of an ensemble, the first model is shown.
        text: The text. If it has several sentences, one of them is shown.
        sentence: Which one, from 0.
        without: Heads to switch off, such as ["cross.6.2", "encoder.1.3"].
    """
    sentences, notices = read_sentences(translator, text)
    if not 0 <= sentence < len(sentences):
        raise InputError(
            f"sentence is {sentence}, but the text has {len(sentences)}; expected 0 to "
            f"{len(sentences) - 1}"
        )
    shown = sentences[sentence]
    if len(sentences) > 1:
        notices.append(f"the text has {len(sentences)} sentences; number {sentence + 1} is shown")
    if not shown.read.endswith(shown.text):  # a language code may stand before it
        notices.append(f'the model reads "{shown.read}"')
    config = beam_search_of(translator.search, notices)
    observed = _observe(translator, shown, config, without)
    notices += observed.notices
    notices += _difference(translator, shown, observed.full or observed.found)
    return _describe(translator, sentences, sentence, observed, notices)


def ablate(translator: Translator, text: str, heads: Iterable[str]) -> Translation:
    """Translate a text without some heads, such as ["cross.6.2"]; the weights stay as they are."""
    with torch_engine(translator).exclusive() as models:
        chosen = find_heads(models[0], heads)
        without = copy.copy(translator)
        without.engine = TorchEngine(*models)
        with switched_off(models[0], chosen):
            return without.translate(text)


@dataclass(frozen=True)
class _Observed:
    """What was seen of one sentence."""

    facts: ModelFacts
    heads: tuple[Head, ...]  # that were switched off
    full: Search | None  # the search with all heads, if some were switched off
    found: Search
    record: Recording
    notices: list[str]


def _observe(
    translator: Translator, shown: SourceSentence, config: SearchConfig, without: Iterable[str]
) -> _Observed:
    """Search, and let the model read the translation once more, with recorders around it."""
    with torch_engine(translator).exclusive() as models, torch.inference_mode():
        heads = find_heads(models[0], without)
        full = run_search(models, shown.ids, config) if heads else None
        with switched_off(models[0], heads):
            found = run_search(models, shown.ids, config)
            record = _record(models[0], shown.ids, found.hypothesis.ids)
        facts = model_facts(translator, models[0])

    notices = [*record.notices]
    if len(models) > 1:
        notices.append(
            f"the translation is that of all {len(models)} models; the attention is that of the "
            "first one, whose heads can be switched off"
        )
    if len(found.hypothesis.ids) >= found.limit:
        notices.append(f"the translation was stopped at {found.limit} tokens and may lack its end")
    return _Observed(facts, heads, full, found, record, notices)


def _describe(
    translator: Translator,
    sentences: list[SourceSentence],
    sentence: int,
    observed: _Observed,
    notices: list[str],
) -> Inspection:
    """Describe what was seen in words and plain arrays."""
    shown = sentences[sentence]
    found = observed.found
    record = observed.record
    tokenizer = translator.tokenizers[1]
    translation = tokenizer.decode(found.hypothesis.ids)
    full = tokenizer.decode(observed.full.hypothesis.ids) if observed.full else None
    attention = {kind: _stack(weights) for kind, weights in record.weights.items()}
    source, target = describe_sides(translator, shown, found, translation)
    links = find_links(translator, shown, found, translation, record.weights["cross"])
    nodes = replay(found)
    return Inspection(
        model=observed.facts,
        sentences=tuple(each.text for each in sentences),
        sentence=sentence,
        text=shown.text,
        translation=translation,
        score=found.hypothesis.score,
        notices=tuple(notices),
        without=tuple(map(str, observed.heads)),
        full_translation=full,
        source=source,
        target=target,
        alignment=links,
        attention=attention,
        residual_norms={side: _norms(vectors) for side, vectors in record.residuals.items()},
        steps=describe_steps(found, nodes, tokenizer),
        beam=describe_beam(found, nodes, tokenizer),
        measures=measure(attention, source, target, links),
    )


def read_sentences(translator: Translator, text: str) -> tuple[list[SourceSentence], list[str]]:
    """Return the sentences of a text, at least one, and notices about it."""
    if not isinstance(text, str):
        raise InputError(f"the text is a {type(text).__name__}; expected a string")
    sentences, notices = translator.read(text)
    if not sentences:
        raise InputError("the text has nothing to translate; expected at least one word")
    return sentences, list(notices)


def beam_search_of(config: SearchConfig, notices: list[str]) -> SearchConfig:
    """Return the settings of the search; sampling has no tree, so it becomes a beam search."""
    if config.temperature == 0:
        return config
    notices.append(f"the translator samples; a beam search of size {config.beam_size} is shown")
    return replace(config, temperature=0.0, top_k=0, top_p=1.0, n_best=1)


def _record(model: Any, source: Sequence[int], target: Sequence[int]) -> Recording:
    """Record one pass over a source and its translation (without the end)."""
    decoder_input = torch.tensor([[model.config.pad, *target]])
    with recording(model) as record:
        model.decode(decoder_input, model.encode(torch.tensor([list(source)])))
    return record


def model_facts(translator: Translator, model: Any) -> ModelFacts:
    """Return the name, the languages and the size of a translator's model."""
    modules = attentions(model)
    data = translator.recipe.data
    name = type(model).__name__
    if translator.bundle is not None:
        path = translator.bundle.path
        # A run has its bundles in `best` and `last`.
        name = path.parent.name if path.name in ("best", "last") else path.name
    return ModelFacts(
        name=name,
        source_language=data.source_language or None,
        target_language=data.target_language or None,
        encoder_layers=len(modules["encoder"]),
        decoder_layers=len(modules["decoder"]),
        heads=modules["cross"][0].h,
        d_model=model.config.d_model,
    )


def _difference(translator: Translator, shown: SourceSentence, found: Search) -> list[str]:
    """Return a notice if the translator's own engine, which rounds more, translates otherwise."""
    if isinstance(translator.engine, TorchEngine) and translator.engine.dtype == torch.float32:
        return []
    ((best, *_),) = translator.engine.search([shown.ids], found.config, token_scores=False)
    if list(best.ids) == list(found.hypothesis.ids):
        return []
    text = translator.tokenizers[1].decode(best.ids)
    name = getattr(translator.engine, "engine_name", type(translator.engine).__name__)
    return [f'{name}, which rounds more, translates it as "{text}"; float32 is shown']


def _stack(weights: list[Tensor]) -> Array:
    return torch.cat(weights).float().cpu().numpy()  # (layers, h, Q, K)


def _norms(residuals: list[Tensor]) -> Array:
    """Return the lengths of the vectors:  list of (1, T, d_model) -> (layers + 1, T)."""
    return torch.cat(residuals).float().norm(dim=-1).cpu().numpy()
