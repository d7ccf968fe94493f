"""What the command line calls: a bundle to a runtime, a folder to a bundle, and a line about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from transduce.engines.conversion import Quantization
from transduce.errors import ExportError
from transduce.storage.bundle import find_bundle, load_bundle

FILES = ("config.json", "source.spm", "target.spm", "vocab.json", "tokenizer_config.json")
To = Literal["ctranslate2", "huggingface", "onnx", "argos"]


def export(bundle: Path, out: Path, to: To, quantization: Quantization | None = None) -> str:
    """Export; the line that says what was made and how far it differs."""
    if quantization and to in ("huggingface", "onnx"):
        raise ExportError(
            f"an export to {to} has float32 and no quantization; leave out --quantization {quantization}"
        )
    loaded = load_bundle(find_bundle(bundle))  # what is not there is told without waiting for torch
    if loaded.own_model or loaded.own_tokenizer:
        what = f"model {loaded.own_model}" if loaded.own_model else "tokenizer"
        raise ExportError(
            f"{loaded.path} was trained with your own {what}, which no other runtime can carry"
        )
    from transduce.exporters import argos, ctranslate2, huggingface, onnx

    if to == "huggingface":
        figures = huggingface.export(loaded, out)
    elif to == "onnx":
        figures = onnx.export(loaded, out)
    else:
        figures = (argos if to == "argos" else ctranslate2).export(
            loaded, out, quantization or "int8"
        )
    return f"{out} is ready; {_told(figures)}"


def import_folder(folder: Path, out: Path | None = None) -> str:
    """Import; the line that says what was made and how to use it."""
    if missing := [name for name in FILES if not (folder / name).is_file()]:
        expected = f"expected a MarianMT folder: {', '.join(FILES)} and weights"
        raise ExportError(
            f"{folder} {f'has no {missing[0]}' if folder.exists() else 'does not exist'}; {expected}"
        )
    from transduce.exporters.from_huggingface import import_model

    out = out or Path("runs") / folder.resolve().name / "best"
    figures = import_model(folder, out)
    return f'{out} is ready; {_told(figures)}; next: transduce translate --model {out} "text"'


def _told(figures: dict[str, Any]) -> str:
    """The figures of a verification in words."""
    told = (
        f"{figures['same_translations']} of {figures['sequences']} sample translations are the same, "
        f"log-probabilities differ by at most {figures['largest_difference']:.1e}"
    )
    if rounded := figures.get("rounded"):
        told += f" in float32; in {figures['quantization']} {rounded['same_translations']} are, and they differ by "
        told += f"{rounded['largest_difference']:.1e}"
    return told
