"""A bundle in fewer bytes: weights as int8 with a scale for each row, or as 16-bit floats."""

from __future__ import annotations

from pathlib import Path

from transduce.errors import BundleError
from transduce.storage.bundle import load_bundle, save_bundle
from transduce.storage.installed import find_bundle
from transduce.storage.tensors import Precision


def compress(model: str | Path, out: str | Path, precision: Precision = "int8") -> Path:
    """Write a bundle with less precise weights, and return its folder."""
    bundle = load_bundle(find_bundle(model))
    if Path(out).exists():
        raise BundleError(f"{out} exists already and is never overwritten; choose another folder")
    provenance = {**bundle.provenance, "compressed_from": bundle.fingerprint}
    return save_bundle(
        out,
        bundle.recipe,
        bundle.weights(),
        bundle.tokenizer_files,
        bundle.scores,
        provenance,
        precision=precision,
        card=bundle.own_card,
    )
