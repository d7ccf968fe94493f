"""Model cards: what a model is, what it was trained on and how good it is, as Markdown.

A card begins with front matter, the YAML block that model hubs read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from transduce.config import CorpusConfig, Recipe
from transduce.storage.sealed_folder import MANIFEST

TEACHER = "distilled_from"  # in the provenance: the model whose translations a student learned
# The scores of a card by their name in `scores.json`: how they are written, and their decimals.
SCORES = {"bleu": ("BLEU", 1), "chrf": ("chrF", 1), "loss": ("loss", 3), "perplexity": ("", 2)}


def model_card(
    recipe: Recipe,
    scores: Mapping[str, Any],
    provenance: Mapping[str, Any],
    parameters: int,
    precision: str,
) -> str:
    """Return the card of a bundle."""
    model = recipe.model
    lines = [
        *front_matter(recipe, "transduce"),
        title(recipe),
        "",
        f"A Transformer of {parameters:,} parameters, stored in {precision}: N = {model.N}, "
        f"d_model = {model.d_model}, d_ff = {model.d_ff}, h = {model.h}, a vocabulary of "
        f"{model.vocab_size:,}. Every setting is in `config.toml`.",
        "",
        '    transduce translate --model FOLDER "text"',
        "",
        *facts(recipe, scores, provenance),
        f"`{MANIFEST}` has the size and SHA-256 of every file; loading checks them and never runs "
        "code.",
    ]
    return "\n".join(lines) + "\n"


def front_matter(recipe: Recipe, library: str) -> list[str]:
    """Return the YAML block at the top of a card; `library` is what loads the model."""
    languages = dict.fromkeys((recipe.data.source_language, recipe.data.target_language))
    return [
        "---",
        "language:",
        *(f"- {_quoted(language)}" for language in languages),
        "# license: add the one that you choose; the licences of the training text count",
        f"library_name: {library}",
        "pipeline_tag: translation",
        "tags:",
        "- translation",
        "- transduce",
        "---",
        "",
    ]


def licence(card: str) -> str | None:
    """Return the licence that the front matter of a card names, or None."""
    if not card.startswith("---\n"):
        return None
    block, _, _ = card.removeprefix("---\n").partition("\n---")
    found = re.search(r"^license: *(\S.*)$", block, flags=re.MULTILINE)
    return found[1].strip("'\" ") if found else None


def title(recipe: Recipe) -> str:
    """Return the heading of a card."""
    source, target = recipe.data.source_language, recipe.data.target_language
    return f"# Translation from {_cell(source)} to {_cell(target)}"


def facts(recipe: Recipe, scores: Mapping[str, Any], provenance: Mapping[str, Any]) -> list[str]:
    """Return the tables of scores, corpora and provenance."""
    others = {name: value for name, value in provenance.items() if name != "corpora"}
    if isinstance(others.get("hardware"), Mapping):
        others["hardware"] = _machine(others["hardware"])
    if isinstance(others.get(TEACHER), Mapping):
        others[TEACHER] = _teacher(others[TEACHER])
    return [
        *_scores_table(recipe, scores),
        *_table("training text", "pairs", _corpora(recipe, provenance)),
        *_table("provenance", "", others),
    ]


def _scores_table(recipe: Recipe, scores: Mapping[str, Any]) -> list[str]:
    """Return the scores of the validation and the test text, with the names of both."""
    validation = {name: value for name, value in scores.items() if name != "test"}
    names = ", ".join(_name(corpus) for corpus in recipe.data.validation)
    where = f"validation text ({names})" if names else "validation text"
    lines = _table("score", where, _rounded(validation))

    test = scores.get("test")
    if isinstance(test, Mapping):
        sentences = _count(test.get("sentences"))
        where = f"test text ({test.get('corpora', '')}, {sentences} sentences)"
        rest = {name: test[name] for name in test if name not in ("corpora", "sentences")}
        lines += _table("score", where, _rounded(rest))
    return lines


def _rounded(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores by the name that they have in the literature, with few decimals."""
    rounded: dict[str, Any] = {}
    for name, value in scores.items():
        label, decimals = SCORES.get(name, (name, 4))
        if isinstance(value, float):
            value = f"{value:.{decimals}f}" if name in SCORES else f"{value:.{decimals}g}"
        rounded[label or name] = value
    return rounded


def _corpora(recipe: Recipe, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of pairs of each corpus; "" where a bundle does not have it."""
    counted = provenance.get("corpora")
    if isinstance(counted, Mapping):
        return {name: _count(pairs) for name, pairs in counted.items()}
    return {_name(corpus): "" for corpus in recipe.data.corpora}


def _machine(hardware: Mapping[str, Any]) -> str:
    """Return the hardware and the versions of a training as a phrase."""
    parts = []
    if "gpu" in hardware:
        gpus = hardware.get("gpus", 1)
        parts.append(f"{gpus} x {hardware['gpu']}" if gpus != 1 else f"{hardware['gpu']}")
    if "cpu" in hardware:
        parts.append(f"{hardware['cpu']} with {hardware.get('cores', '?')} cores")
    if "memory_gib" in hardware:
        parts.append(f"{hardware['memory_gib']} GiB of memory")
    for name, label in (("torch", "torch "), ("python", "Python "), ("system", "")):
        if name in hardware:
            parts.append(f"{label}{hardware[name]}")
    return ", ".join(parts)


def _teacher(teacher: Mapping[str, Any]) -> str:
    """Return a teacher and its BLEU, on its test text if there is one, as a phrase."""
    scores = teacher.get("scores")
    test = scores.get("test") if isinstance(scores, Mapping) else None
    text = "its validation text"
    if isinstance(test, Mapping) and "bleu" in test:
        scores = test
        text = test.get("corpora", "its test text")
    bleu = _rounded(scores).get("BLEU") if isinstance(scores, Mapping) else None
    quality = "" if bleu is None else f", BLEU {bleu} on {text}"
    return (
        f"{teacher.get('name')} ({str(teacher.get('fingerprint'))[:12]}){quality}; its licence and "
        "its training text count, too"
    )


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _name(corpus: CorpusConfig) -> str:
    return corpus.name or corpus.source[0]


def _table(title: str, header: str, entries: Mapping[str, Any]) -> list[str]:
    if not entries:
        return []
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in entries.items()]
    return [f"| {title} | {_cell(header)} |", "| --- | --- |", *rows, ""]


def _cell(value: object) -> str:
    """Return a value as one line that does not end a cell of a table."""
    return " ".join(str(value).split()).replace("|", r"\|")


def _quoted(text: str) -> str:
    """Return a text as a double-quoted YAML string, which no character of it can end."""
    characters = []
    for character in text:
        plain = character.isprintable() and character not in '"\\'
        characters.append(character if plain else f"\\U{ord(character):08x}")
    return f'"{"".join(characters)}"'
