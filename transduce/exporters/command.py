"""Export and import as functions of the command line, which return a line for the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from transduce.engines.conversion import Quantization
from transduce.errors import ExportError
from transduce.storage.bundle import load_bundle
from transduce.storage.installed import find_bundle

FILES = ("config.json", "source.spm", "target.spm", "vocab.json", "tokenizer_config.json")
To = Literal["ctranslate2", "huggingface", "onnx", "argos"]


def export(bundle: Path, out: Path, to: To, quantization: Quantization | None = None) -> str:
    """Export a bundle, and return a line that says how far the result differs."""
    if quantization and to in ("huggingface", "onnx"):
        raise ExportError(
            f"an export to {to} is always in float32; leave out --quantization {quantization}"
        )
    # Errors about a missing bundle come before the slow import of torch.
    loaded = load_bundle(find_bundle(bundle))
    if loaded.own_model or loaded.own_tokenizer:
        part = f"model {loaded.own_model}" if loaded.own_model else "tokenizer"
        raise ExportError(
            f"{loaded.path} was trained with your own {part}, which no other runtime can run; "
            "export a bundle of a standard model"
        )
    from transduce.exporters import argos, ctranslate2, huggingface, onnx

    if to == "huggingface":
        figures = huggingface.export(loaded, out)
    elif to == "onnx":
        figures = onnx.export(loaded, out)
    else:
        exporter = argos if to == "argos" else ctranslate2
        figures = exporter.export(loaded, out, quantization or "int8")
    return f"{out} is ready; {_summarize(figures)}"


def import_folder(folder: Path, out: Path | None = None) -> str:
    """Import a MarianMT folder as a bundle, and return a line that says how to use it."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        problem = f"has no {missing[0]}" if folder.exists() else "does not exist"
        raise ExportError(
            f"{folder} {problem}; expected a MarianMT folder: {', '.join(FILES)} and weights"
        )
    from transduce.exporters.from_huggingface import import_model

    out = out or Path("runs") / folder.resolve().name / "best"
    figures = import_model(folder, out)
    return f'{out} is ready; {_summarize(figures)}; next: transduce translate --model {out} "text"'


def _summarize(figures: dict[str, Any]) -> str:
    """Return the figures of a verification in words."""
    summary = (
        f"{figures['same_translations']} of {figures['sequences']} sample translations are the "
        f"same, log-probabilities differ by at most {figures['largest_difference']:.1e}"
    )
    rounded = figures.get("rounded")
    if rounded:
        summary += (
            f" in float32; in {figures['quantization']} {rounded['same_translations']} are, and "
            f"they differ by {rounded['largest_difference']:.1e}"
        )
    return summary
