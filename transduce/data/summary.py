"""Summarize a token store as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from transduce.config import Recipe
from transduce.data.sampler import Sampler
from transduce.data.store import SECTIONS, Store
from transduce.errors import ConfigError


def summary(store: Store, recipe: Recipe) -> str:
    """Return a table of pairs, tokens and dropped pairs by corpus, and how full the batches are."""
    return "\n".join(_lines(store, recipe))


def _lines(store: Store, recipe: Recipe) -> Iterator[str]:
    sections = store.manifest["sections"]
    names: list[str] = []
    for section in SECTIONS:
        names += sections[section]["corpora"]
    width = max(map(len, names)) + 2
    yield str(store.path)
    yield f"{'':10}  {'':{width}}{'pairs':>12}{'source tokens':>16}{'target tokens':>16}  dropped"
    for section in SECTIONS:
        for name, corpus in sections[section]["corpora"].items():
            tokens = f"{corpus['source_tokens']:16,}{corpus['target_tokens']:16,}"
            reasons = Counter(corpus["dropped"]).most_common()
            dropped = ", ".join(f"{count:,} {reason}" for reason, count in reasons) or "none"
            yield f"{section:10}  {name:{width}}{corpus['pairs']:12,}{tokens}  {dropped}"

    source = store.source_tokenizer
    target = store.target_tokenizer
    vocabulary = f"{target.vocab_size:,}"
    if source is not target:
        vocabulary = f"{source.vocab_size:,} + {vocabulary}"
    yield f"vocabulary  {vocabulary} pieces, {recipe.data.tokenizer.kind}"
    yield f"batches     {_batches(store, recipe)}"


def _batches(store: Store, recipe: Recipe) -> str:
    try:
        sampler = Sampler.of(recipe, store)
    except ConfigError as error:
        return str(error)
    tokens = recipe.training.tokens_per_step
    first_steps = range(min(8, sampler.steps_per_epoch))
    efficiencies = [sampler.batch(step).efficiency for step in first_steps]
    source, target = np.mean(efficiencies, axis=0)
    source_length, target_length = sampler.shape()
    return (
        f"{sampler.steps_per_epoch:,} steps of about {tokens:,} tokens a side make an epoch; "
        f"packed into rows of {source_length:,} source and {target_length:,} target positions, "
        f"{source:.1%} and {target:.1%} of them used"
    )
