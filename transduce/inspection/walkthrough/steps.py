"""A walk through one translation in the paper's order, with this sentence's numbers.

Each step has an explanation, the formula, the lines of `model/` that compute it, and numbers that
are those of the model. The page and the notebook show it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.data.tokenizer import EOS, SPACE_MARK, Tokenizer
from transduce.errors import InputError
from transduce.inspection.inspect import beam_search_of, model_facts, read_sentences
from transduce.inspection.models import torch_engine
from transduce.inspection.replay import run_search
from transduce.inspection.walkthrough import formulas, numbers, texts
from transduce.inspection.walkthrough.formulas import Scene
from transduce.inspection.walkthrough.positions import position_variants
from transduce.inspection.walkthrough.recording import Recording, record
from transduce.inspection.walkthrough.result import Step, Value, Walkthrough
from transduce.inspection.walkthrough.source_code import code_of
from transduce.model import Transformer
from transduce.translation.reading import SourceSentence
from transduce.translation.translator import Translator

MOST_TOKENS = 48  # of the sentence that is shown
EXTRA_TOKENS = 10  # that a translation with other positions may have more than the real one

# The steps in order: name, title and section of the paper.
STEPS = (
    ("tokens", "From text to tokens", "5.1"),
    ("embedding", "A vector for each token", "3.4"),
    ("position", "Where in the sentence?", "3.5"),
    ("queries-keys-values", "Queries, keys and values", "3.2.2"),
    ("scores", "Every query meets every key", "3.2.1"),
    ("scale", "Scale the scores", "3.2.1"),
    ("softmax", "Scores become weights", "3.2.1"),
    ("weighted-sum", "The weighted sum of the values", "3.2.1"),
    ("heads", "All heads together", "3.2.2"),
    ("residual-norm", "Residual and norm", "3.1"),
    ("feed-forward", "Feed-forward", "3.3"),
    ("mask", "No look into the future", "3.2.3"),
    ("cross-attention", "Read the source", "3.2.3"),
    ("distribution", "A probability for every token", "3.4"),
    ("next-token", "The next token, and again", "3.1"),
)


def walkthrough(translator: Translator, text: str, *, layer: int = 1, head: int = 1) -> Walkthrough:
    """Translate the first sentence of a text, and return every step on the way with its numbers.

    Args:
        translator: A translator with any engine. Of an ensemble, the first model is shown.
        text: The text.
        layer: The layer that is shown, from 1. The side with fewer layers shows its last.
        head: The head that is shown, from 1.
    """
    sentence, notices = _first_sentence(translator, text)
    config = beam_search_of(translator.search, notices)
    with torch_engine(translator).exclusive() as models, torch.inference_mode():
        model = models[0]
        scene = _scene(model, len(sentence.ids), layer, head)
        found = run_search(models, sentence.ids, config)
        target = [*found.hypothesis.ids, EOS]
        layers = (scene.layer - 1, scene.decoder_layer - 1)
        recording = record(model, sentence.ids, target, layers)
        data = _numbers(recording, translator, sentence.ids, target, scene)
        facts = model_facts(translator, model)
    if len(found.hypothesis.ids) >= found.limit:
        notices.append(f"the translation was stopped at {found.limit} tokens and may lack its end")

    return Walkthrough(
        model=vars(facts),
        text=sentence.text,
        translation=translator.tokenizers[1].decode(target),
        notices=tuple(notices),
        layer=layer,
        head=head,
        source=_labels(translator.tokenizers[0], sentence.ids),
        target=_labels(translator.tokenizers[1], target),
        steps=tuple(_steps(scene, data)),
    )


def _first_sentence(translator: Translator, text: str) -> tuple[SourceSentence, list[str]]:
    """Return the first sentence of a text, cut if it is long, and what a reader should know."""
    sentences, notices = read_sentences(translator, text)
    sentence = sentences[0]
    if len(sentences) > 1:
        notices.append(f"the text has {len(sentences)} sentences; the first one is shown")
    if len(sentence.ids) > MOST_TOKENS:
        notices.append(
            f"the sentence has {len(sentence.ids)} tokens; only the first {MOST_TOKENS - 1} are "
            "read here, so that the tables stay readable"
        )
        ids = [*sentence.ids[: MOST_TOKENS - 1], EOS]
        plain = translator.tokenizers[0].decode(ids)
        sentence = SourceSentence(plain, plain, ids)
    return sentence, notices


def _scene(model: Any, source_tokens: int, layer: int, head: int) -> Scene:
    """Check that the model has this layer and head, and return what is shown of it."""
    if not isinstance(model, Transformer):
        raise InputError(
            f"the model is a {type(model).__name__}; the walkthrough explains the class "
            "Transformer and its subclasses"
        )
    _check_choice("layer", layer, max(len(model.encoder), len(model.decoder)))
    _check_choice("head", head, model.config.h)
    return Scene(
        config=model.config,
        source_tokens=source_tokens,
        layer=min(layer, len(model.encoder)),
        decoder_layer=min(layer, len(model.decoder)),
        head=head,
    )


def _check_choice(name: str, value: int, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise InputError(f"{name} is {value!r}; this model has the {name}s 1 to {most}")


def _numbers(
    recording: Recording,
    translator: Translator,
    source: Sequence[int],
    target: Sequence[int],
    scene: Scene,
) -> dict[str, dict[str, Any]]:
    """Return the numbers of every step: tensors, and lists of strings."""
    reader, writer = translator.tokenizers
    head = scene.head - 1
    most = min(len(target) + EXTRA_TOKENS, translator.search.limit(len(source)))
    variants = position_variants(recording.model, source, scene.layer - 1, head, most)
    distribution = numbers.distribution(recording)
    candidates = distribution.pop("candidates").tolist()
    return {
        "tokens": {"pieces": reader.pieces(source), "ids": torch.tensor(source)},
        "embedding": numbers.embedding(recording),
        "position": {
            **numbers.position(recording),
            "kind": [scene.config.positions],
            "variants": variants.names,
            "weights": variants.weights,
            "translations": writer.decode_batch(variants.translations),
        },
        "queries-keys-values": numbers.queries_keys_values(recording, "self_attention", head),
        "scores": numbers.scores(recording, head),
        "scale": numbers.scale(recording, head),
        "softmax": numbers.softmax(recording, head),
        "weighted-sum": numbers.weighted_sum(recording, head),
        "heads": numbers.heads(recording),
        "residual-norm": numbers.residual_norm(recording),
        "feed-forward": numbers.feed_forward(recording),
        "mask": numbers.mask(recording, head),
        "cross-attention": numbers.cross_attention(recording, head),
        "distribution": distribution | {"candidates": _label_rows(writer, candidates)},
        "next-token": _next_tokens(recording, writer, target),
    }


def _next_tokens(
    recording: Recording, tokenizer: Tokenizer, target: Sequence[int]
) -> dict[str, Any]:
    """Return what was chosen at every step, what was most probable, and the text so far."""
    probabilities = recording.logits.softmax(dim=-1)
    chosen = probabilities.gather(-1, torch.tensor(target)[:, None])[:, 0]
    best = probabilities.max(dim=-1)
    beginnings = [target[: count + 1] for count in range(len(target))]
    return {
        "chosen": _labels(tokenizer, target),
        "probability": chosen,
        "best": _labels(tokenizer, best.indices.tolist()),
        "best_probability": best.values,
        "text": tokenizer.decode_batch(beginnings),
    }


def _steps(scene: Scene, data: dict[str, dict[str, Any]]) -> Iterator[Step]:
    for name, title, section in STEPS:
        function = name.replace("-", "_")
        yield Step(
            name=name,
            title=title,
            section=section,
            explanation=getattr(texts, function)(scene),
            formula=getattr(formulas, function)(scene),
            code=code_of(name, scene.config),
            data={key: _plain(value) for key, value in data[name].items()},
        )


def _plain(value: Tensor | Value) -> Value:
    return value.numpy() if isinstance(value, Tensor) else value


def _labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return tokens as a reader sees them; a space before a token is not shown."""
    labels = []
    for token, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        text = piece.removeprefix(SPACE_MARK).replace(SPACE_MARK, " ")
        labels.append("</s>" if token == EOS else text or "␣")
    return labels


def _label_rows(tokenizer: Tokenizer, rows: list[list[int]]) -> list[str]:
    """Return the labels of a table of tokens, row after row."""
    return _labels(tokenizer, list(itertools.chain.from_iterable(rows)))
