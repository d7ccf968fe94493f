"""Readers' favourite: "it" is the animal if it was too tired, and the street if it was too wide."""

from __future__ import annotations

from transduce.data.languages import base_language
from transduce.inspection.inspect import inspect
from transduce.inspection.result import Inspection
from transduce.paper.claims.claim import Chart, Claim, Context, Finding
from transduce.paper.sentences import SENTENCES

NOUNS = {"tired": "animal", "wide": "street"}
PRONOUNS = {"tired": "es", "wide": "sie"}  # das Tier, die Straße


def experiment(context: Context) -> Finding:
    """Compare the attention of "it" and the German pronoun in both sentences."""
    translator = context.needs_translator()
    data = translator.recipe.data
    languages = (base_language(data.source_language), base_language(data.target_language))
    if languages != ("en", "de"):
        return Finding(
            None,
            f"The model translates {data.direction}; the pronouns are those of English and German.",
        )
    found = {ending: inspect(translator, SENTENCES[ending]) for ending in NOUNS}

    # How much more "it" attends to the animal than to the street, by head of the encoder.
    leanings = {ending: _leanings(inspection) for ending, inspection in found.items()}
    shifts = {head: leanings["tired"][head] - leanings["wide"][head] for head in leanings["tired"]}
    best = max(shifts, key=lambda head: shifts[head])
    curves = {}
    for ending, values in leanings.items():
        curves[ending] = [(float(index), y) for index, y in enumerate(values.values(), start=1)]

    # The pronoun of the last clause.
    given = {ending: _pronoun(inspection.translation) for ending, inspection in found.items()}
    right = {ending: given[ending] == PRONOUNS[ending] for ending in NOUNS}
    texts = "; ".join(f'"{found[ending].translation}"' for ending in NOUNS)
    return Finding(
        all(right.values()) and shifts[best] > 0.1,
        f"Head {best} moves {shifts[best]:.2f} of its weight from street to animal when wide "
        f"becomes tired. The pronouns are {given['tired']} and {given['wide']} (right: es and "
        f"sie): {texts}",
        [Chart('"it" to animal minus "it" to street', "head of the encoder", "weight", curves)],
        {"translations": {ending: found[ending].translation for ending in NOUNS}, "shifts": shifts},
    )


def _leanings(inspection: Inspection) -> dict[str, float]:
    """Return the weight of "it" on the animal minus that on the street, by head."""
    words = {word: _places(inspection, word) for word in ("it", "animal", "street")}
    weights = inspection.attention["encoder"]  # (N, h, S, S)
    leanings = {}
    for layer in range(weights.shape[0]):
        for head in range(weights.shape[1]):
            rows = weights[layer, head][words["it"]].mean(0)
            lean = rows[words["animal"]].sum() - rows[words["street"]].sum()
            leanings[f"encoder.{layer + 1}.{head + 1}"] = float(lean)
    return leanings


def _places(inspection: Inspection, word: str) -> list[int]:
    """Return the tokens that are part of a word."""
    words = inspection.source.words
    places = []
    for place, token in enumerate(inspection.source.tokens):
        if token.word is not None and words[token.word] == word:
            places.append(place)
    return places


def _pronoun(translation: str) -> str:
    """Return the pronoun after the last comma, or "none"."""
    clause = translation.rpartition(",")[2].lower().split()
    return next((word for word in clause if word in ("er", "es", "sie")), "none")


CLAIM = Claim(
    'In "The animal didn\'t cross the street because it was too tired", attention of "it" goes to '
    'the animal; with "wide" it goes to the street, and German needs another pronoun.',
    "the authors' blog post of August 2017",
    experiment,
    needs_model=True,
)
