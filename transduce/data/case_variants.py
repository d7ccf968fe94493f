"""Add sentence pairs in other cases: in capitals, and with a source in lower case.

Capitals are rare in most parallel text, and tokenizers split them into other pieces, so that models
often copy them instead of translating.
"""

from __future__ import annotations

from collections.abc import Sequence

from transduce.data import rng


def case_variants(
    sources: Sequence[str], targets: Sequence[str], share: float, *seed: int
) -> tuple[list[str], list[str]]:
    """Return variants of some of the pairs, a pure function of the seed.

    For this share of the pairs both sides are in capitals, and for as many others the source is in
    lower case, as in messages that are written in a hurry. Pairs that would stay as they are, such
    as numbers, have no variant.
    """
    chances = rng.raw(len(sources), "case", *seed) / 2.0**64  # from 0 to 1
    more_sources: list[str] = []
    more_targets: list[str] = []
    for source, target, chance in zip(sources, targets, chances.tolist(), strict=True):
        if chance < share:
            variant = (source.upper(), target.upper())
        elif chance < 2 * share:
            variant = (source.lower(), target)
        else:
            continue
        if variant[0] != source:
            more_sources.append(variant[0])
            more_targets.append(variant[1])
    return more_sources, more_targets
