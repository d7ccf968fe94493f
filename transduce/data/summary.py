"""What a store holds and what it was made from, for a person to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from transduce.config import Recipe
from transduce.data.sampler import Sampler
from transduce.data.store import SECTIONS, Store
from transduce.errors import ConfigError


def summary(store: Store, recipe: Recipe) -> str:
    """Pairs, tokens and dropped pairs of each corpus, and how full the batches of this recipe are."""
    return "\n".join(_lines(store, recipe))


def _lines(store: Store, recipe: Recipe) -> Iterator[str]:
    names = [
        name for section in SECTIONS for name in store.manifest["sections"][section]["corpora"]
    ]
    width = max(map(len, names)) + 2
    yield str(store.path)
    yield f"{'':10}  {'':{width}}{'pairs':>12}{'source tokens':>16}{'target tokens':>16}  dropped"
    for section in SECTIONS:
        for name, about in store.manifest["sections"][section]["corpora"].items():
            counts = f"{about['pairs']:12,}{about['source_tokens']:16,}{about['target_tokens']:16,}"
            reasons = Counter(about["dropped"]).most_common()
            dropped = ", ".join(f"{count:,} {reason}" for reason, count in reasons) or "none"
            yield f"{section:10}  {name:{width}}{counts}  {dropped}"
    source, target = store.source_tokenizer, store.target_tokenizer
    vocabulary = (
        f"{target.vocab_size:,}"
        if source is target
        else f"{source.vocab_size:,} + {target.vocab_size:,}"
    )
    yield f"vocabulary  {vocabulary} pieces, {recipe.data.tokenizer.kind}"
    yield f"batches     {_batches(store, recipe)}"


def _batches(store: Store, recipe: Recipe) -> str:
    tokens = recipe.training.tokens_per_step
    try:
        plan = Sampler.of(recipe, store)
    except ConfigError as error:
        return str(error)
    sample = range(min(8, plan.steps_per_epoch))
    source, target = np.mean([plan.batch(step).efficiency for step in sample], axis=0)
    rows = "{:,} source and {:,} target positions".format(*plan.shape())
    return (
        f"{plan.steps_per_epoch:,} steps of about {tokens:,} tokens a side make an epoch; packed into rows of {rows}, "
        f"{source:.1%} and {target:.1%} of them used"
    )
