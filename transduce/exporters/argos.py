"""A bundle as a package of Argos Translate: a zip of a CTranslate2 model, one tokenizer and what they translate."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from transduce.engines.conversion import Quantization, convert
from transduce.errors import ExportError, MissingExtra, require
from transduce.exporters.ctranslate2 import verify_model
from transduce.exporters.output import made_whole, write_report
from transduce.storage.bundle import Bundle

SUFFIX = ".argosmodel"
VERSIONS = {
    "package_version": "1.0",
    "argos_version": "1.5",
}  # of this package; of the Argos Translate that it needs


def export(bundle: Bundle, out: Path, quantization: Quantization = "int8") -> dict[str, Any]:
    """Make the package `out`; the report that is written into it."""
    if out.suffix != SUFFIX:
        raise ExportError(
            f"{out} does not end with {SUFFIX}; Argos Translate knows its packages by that"
        )
    if "tokenizer.model" not in bundle.tokenizer_files:
        raise ExportError(
            "data.tokenizer.joint is false; an Argos package has one tokenizer for both languages"
        )
    data = bundle.recipe.data
    name = f"translate-{data.source_language}_{data.target_language}-{VERSIONS['package_version'].replace('.', '_')}"
    with made_whole(out) as work, tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / name
        (package / "model").mkdir(parents=True)
        # Argos hands over pieces without the end of the sentence.
        convert(bundle, package / "model", quantization, adds_end=True)
        (package / "sentencepiece.model").write_bytes(bundle.tokenizer_files["tokenizer.model"])
        (package / "README.md").write_text(_readme(bundle), encoding="utf-8")
        (package / "metadata.json").write_text(
            json.dumps(_metadata(bundle), indent=1) + "\n", encoding="utf-8"
        )
        figures = verify_model(bundle, package / "model", quantization, adds_end=True)
        report = write_report(package, bundle, figures)
        shutil.move(shutil.make_archive(str(package), "zip", folder, name), work)
    return report


def _metadata(bundle: Bundle) -> dict[str, str]:
    codes = {"from": bundle.recipe.data.source_language, "to": bundle.recipe.data.target_language}
    languages = {f"{side}_code": code for side, code in codes.items()}
    return VERSIONS | languages | {f"{side}_name": _language(code) for side, code in codes.items()}


def _language(code: str) -> str:
    """Its name in English, where Babel is there to tell and knows it."""
    try:
        babel = require("babel", extra="phrases")
        return babel.Locale.parse(code).get_display_name("en") or code
    except (MissingExtra, ValueError, LookupError):
        return code


def _readme(bundle: Bundle) -> str:
    data = bundle.recipe.data
    return f"""# Translation from {data.source_language} to {data.target_language}

A package of Argos Translate, installed by `argostranslate.package.install_from_path(FILE)` in Python.

It brings no model that splits text into sentences: Argos Translate 1.11 gets the one of its language from the network,
once. To work without, put that into this package, as `minisbd/{data.source_language}.onnx` next to `model`.

Argos Translate computes in int8 whatever the package holds, unless ARGOS_COMPUTE_TYPE is set to `default`.
Before 1.10, a character outside the vocabulary, which this model spells in bytes, appears there as their codes.
`export.json` says how the model was compared with the one it was made of.
"""
