"""Export to Argos Translate: a zip file with a CTranslate2 model, a tokenizer and metadata."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from transduce.engines.conversion import Quantization, convert
from transduce.errors import ExportError, MissingExtra, require
from transduce.exporters.ctranslate2 import verify_model
from transduce.exporters.output import complete_output, write_report
from transduce.storage.bundle import Bundle

SUFFIX = ".argosmodel"
PACKAGE_VERSION = "1.0"
ARGOS_VERSION = "1.5"  # the oldest Argos Translate that can read the package


def export(bundle: Bundle, out: Path, quantization: Quantization = "int8") -> dict[str, Any]:
    """Write the package `out`, and return the report that is written into it."""
    if out.suffix != SUFFIX:
        raise ExportError(
            f"{out} does not end with {SUFFIX}, which Argos Translate requires; rename the output"
        )
    if "tokenizer.model" not in bundle.tokenizer_files:
        raise ExportError(
            "data.tokenizer.joint is false, but an Argos package has one tokenizer for both "
            "languages; train with data.tokenizer.joint=true"
        )
    data = bundle.recipe.data
    version = PACKAGE_VERSION.replace(".", "_")
    name = f"translate-{data.source_language}_{data.target_language}-{version}"
    with complete_output(out) as work, tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / name
        (package / "model").mkdir(parents=True)
        # Argos passes pieces without the end of the sentence.
        convert(bundle, package / "model", quantization, adds_end=True)
        (package / "sentencepiece.model").write_bytes(bundle.tokenizer_files["tokenizer.model"])
        (package / "README.md").write_text(_readme(bundle), encoding="utf-8")
        metadata = json.dumps(_metadata(bundle), indent=1) + "\n"
        (package / "metadata.json").write_text(metadata, encoding="utf-8")
        figures = verify_model(bundle, package / "model", quantization, adds_end=True)
        report = write_report(package, bundle, figures)
        archive = shutil.make_archive(str(package), "zip", folder, name)
        shutil.move(archive, work)
    return report


def _metadata(bundle: Bundle) -> dict[str, str]:
    source = bundle.recipe.data.source_language
    target = bundle.recipe.data.target_language
    return {
        "package_version": PACKAGE_VERSION,
        "argos_version": ARGOS_VERSION,
        "from_code": source,
        "to_code": target,
        "from_name": _language_name(source),
        "to_name": _language_name(target),
    }


def _language_name(code: str) -> str:
    """Return the English name of a language, or its code if Babel is missing or lacks it."""
    try:
        babel = require("babel", extra="phrases")
        return babel.Locale.parse(code).get_display_name("en") or code
    except (MissingExtra, ValueError, LookupError):
        return code


def _readme(bundle: Bundle) -> str:
    data = bundle.recipe.data
    return f"""# Translation from {data.source_language} to {data.target_language}

A package of Argos Translate. To install it in Python, call
`argostranslate.package.install_from_path(FILE)`.

The package has no model that splits text into sentences: Argos Translate 1.11 downloads one for the
source language once. To work without a network, put that model into this package as
`minisbd/{data.source_language}.onnx` next to `model`.

Argos Translate computes in int8 whatever the package contains, unless ARGOS_COMPUTE_TYPE is
`default`. Versions before 1.10 show characters outside the vocabulary as codes of their bytes.
`export.json` has the comparison of this model with the original.
"""
