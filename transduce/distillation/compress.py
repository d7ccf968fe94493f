"""A bundle in fewer bytes: weights as int8 with a scale for each row, or as 16-bit floats."""

from __future__ import annotations

from pathlib import Path

from transduce.distillation.shortlist import learn_shortlist
from transduce.errors import BundleError
from transduce.storage.bundle import SHORTLIST, load_bundle, save_bundle
from transduce.storage.installed import find_bundle
from transduce.storage.tensors import Precision


def compress(
    model: str | Path,
    out: str | Path,
    precision: Precision = "int8",
    *,
    shortlist: str | Path | None = None,
) -> Path:
    """Write a bundle with less precise weights, and return its folder.

    Args:
        model: A bundle or a run.
        out: The new bundle.
        precision: How each weight is stored.
        shortlist: A recipe; only the target tokens that its training text needs are on the
            bundle's shortlist. By default it keeps the one that it has.
    """
    bundle = load_bundle(find_bundle(model))
    if Path(out).exists():
        raise BundleError(f"{out} exists already and is never overwritten; choose another folder")
    files = dict(bundle.tokenizer_files)
    if shortlist is not None:
        files[SHORTLIST] = learn_shortlist(bundle, shortlist)
    provenance = {**bundle.provenance, "compressed_from": bundle.fingerprint}
    return save_bundle(
        out,
        bundle.recipe,
        bundle.weights(),
        files,
        bundle.scores,
        provenance,
        precision=precision,
        card=bundle.own_card,
    )
