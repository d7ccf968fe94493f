"""The paper's figures: schedule, positional encodings, and the attention of any trained model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from transduce.data.languages import base_language
from transduce.errors import InputError
from transduce.inspection.figure import attention_figure
from transduce.inspection.inspect import inspect
from transduce.inspection.result import Inspection
from transduce.inspection.svg import document, write
from transduce.model.positions import sinusoids
from transduce.paper.chart import line_chart
from transduce.paper.page import Figure, Section
from transduce.paper.sentences import SENTENCES
from transduce.presets import BASE, BIG
from transduce.recipe import apply_overrides
from transduce.training.optimizer import learning_rate
from transduce.translation.translator import Translator

POSITIONS = 40
DIMENSIONS = 48
CELL = 8
# The captions by file name; the report shows the files that exist.
CAPTIONS = {
    "paper-schedule.svg": "Equation 3: the learning rate of base, big and other warm-ups",
    "paper-positions.svg": "§3.5: positional encodings, 40 positions of 48 dimensions",
    "paper-figure3.svg": "Figure 3: long-distance dependencies of the word making",
    "paper-figure4.svg": "Figure 4: anaphora, the head that links its and Law most",
    "paper-figure5.svg": "Figure 5: a head that follows the structure of the sentence",
    "paper-it-tired.svg": "It was too tired: the head that links it and animal most",
    "paper-it-wide.svg": "It was too wide: the same head",
}


def plain_figures() -> Iterator[Figure]:
    """Yield the figures that need no trained model."""
    yield _figure("paper-schedule.svg", _schedule())
    yield _figure("paper-positions.svg", _positions())


def attention_figures(translator: Translator) -> Iterator[Figure]:
    """Yield the attention pictures of the appendix, drawn from a trained model.

    As in the paper, figures 3 and 5 show the last layer but one of the encoder. Anaphora is shown
    in the head of any layer that links the two words most.
    """
    data = translator.recipe.data
    if base_language(data.source_language) != "en":
        raise InputError(
            "the pictures are those of English sentences, but the model translates "
            f"{data.direction}; give a model that translates from English"
        )
    long = inspect(translator, SENTENCES["long-distance"])
    layer = max(1, long.model.encoder_layers - 1)
    yield _figure("paper-figure3.svg", attention_figure(long, "encoder", layer, word="making"))

    anaphora = inspect(translator, SENTENCES["anaphora"])
    place, head = _strongest_head(anaphora, "its", "Law")
    picture = attention_figure(anaphora, "encoder", place, [head], word="its")
    yield _figure("paper-figure4.svg", picture)
    head = _clearest_head(anaphora, layer)
    yield _figure("paper-figure5.svg", attention_figure(anaphora, "encoder", layer, [head]))

    # The same head for both endings: another one could be found for any noun.
    tired = inspect(translator, SENTENCES["tired"])
    place, head = _strongest_head(tired, "it", "animal")
    for ending in ("tired", "wide"):
        found = inspect(translator, SENTENCES[ending])
        picture = attention_figure(found, "encoder", place, [head], word="it")
        yield _figure(f"paper-it-{ending}.svg", picture)


def section(folder: Path) -> Section:
    """Return the figures that were drawn, from their files."""
    drawn = []
    for name, caption in CAPTIONS.items():
        path = folder / name
        if path.is_file():
            drawn.append(Figure(name, caption, path.read_text(encoding="utf-8")))
    missing = [caption for name, caption in CAPTIONS.items() if not (folder / name).is_file()]
    paragraphs = [f"Not drawn yet: {'; '.join(missing)}."] if missing else []
    return Section("Figures", paragraphs, (), drawn)


def _figure(name: str, svg: str) -> Figure:
    return Figure(name, CAPTIONS[name], svg)


def _schedule() -> str:
    steps = [*range(1, 4_000, 100), *range(4_000, 20_001, 400)]
    recipes = {
        "base": BASE,
        "base, warm-up 8000": apply_overrides(BASE, ["training.warmup_steps=8000"]),
        "base, d_model 256": apply_overrides(BASE, ["model.d_model=256"]),
        "big": BIG,
    }
    curves = {}
    for name, recipe in recipes.items():
        curves[name] = [(float(step), learning_rate(recipe, step)) for step in steps]
    return line_chart("Learning rate (Equation 3)", curves, x_label="step", y_label="")


def _positions() -> str:
    """Draw a square for each number: blue is -1, white 0, orange +1."""
    table = sinusoids(torch.arange(POSITIONS)[None], DIMENSIONS)[0]
    parts = [write(10, 20, "Positional encodings", weight="bold")]
    parts.append(write(10, 40, "rows: positions; columns: dimensions", fill="#555"))
    for position, row in enumerate(table.tolist()):
        for dimension, value in enumerate(row):
            x = 10 + CELL * dimension
            y = 52 + CELL * position
            if abs(value) < 0.005:
                continue  # white
            colour = "#d55e00" if value > 0 else "#0072b2"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour}" '
                f'fill-opacity="{abs(value):.2f}"/>'
            )
    width = 20 + CELL * DIMENSIONS
    return document(width, 62 + CELL * POSITIONS, parts, "Positional encodings")


def _clearest_head(inspection: Inspection, layer: int) -> int:
    """Return the head of a layer, from 1, that decides most clearly between the words."""
    weights = inspection.attention["encoder"][layer - 1]  # (h, S, S)
    to_words = weights[:, :, :-1]  # many heads rest on the end of the sentence
    return int(to_words.max(axis=-1).mean(axis=-1).argmax()) + 1


def _strongest_head(inspection: Inspection, query: str, key: str) -> tuple[int, int]:
    """Return the layer and head, from 1, with which one word attends most to another."""
    words = inspection.source.words
    places: dict[str, list[int]] = {query: [], key: []}
    for place, token in enumerate(inspection.source.tokens):
        if token.word is not None and words[token.word] in places:
            places[words[token.word]].append(place)
    if not places[query] or not places[key]:
        raise InputError(
            f"the model does not read {query!r} and {key!r} as words; expected a model that "
            "translates from English"
        )
    weights = inspection.attention["encoder"]  # (N, h, S, S)
    strengths = weights[:, :, places[query]].mean(axis=2)[:, :, places[key]].sum(axis=-1)  # (N, h)
    layer, head = divmod(int(strengths.argmax()), strengths.shape[1])
    return layer + 1, head + 1
