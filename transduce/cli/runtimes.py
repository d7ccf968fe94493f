"""The commands about other runtimes: export a model, and import one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from transduce.cli.arguments import Command, Help


def export(
    bundle: Annotated[
        Path, Help("a saved model (bundle), or the run folder that contains one", value="MODEL")
    ],
    out: Annotated[Path, Help("the new folder; for argos, a new file named *.argosmodel")],
    *,
    to: Annotated[
        Literal["ctranslate2", "huggingface", "onnx", "argos"],
        Help("the runtime; huggingface is a MarianMT model, argos is for Argos Translate"),
    ],
    quantization: Annotated[
        Literal["int8", "float32"] | None,
        Help("for ctranslate2 and argos (default: int8); the others use float32"),
    ] = None,
) -> None:
    """Convert a model for another runtime and compare results.

    Examples:
        transduce export runs/demo --to ctranslate2 demo-ctranslate2
        transduce export runs/demo --to argos demo.argosmodel
    """
    from transduce.exporters.command import export as export_model

    print(export_model(bundle, out, to, quantization))


def import_model(
    layout: Annotated[Literal["huggingface"], Help("format of the model: MarianMT")],
    folder: Annotated[Path, Help("folder of the model on this machine")],
    *,
    out: Annotated[
        Path | None,
        Help(
            "folder of the new model (default: runs/NAME/best, where translate finds it)",
            value="FOLDER",
        ),
    ] = None,
) -> None:
    """Convert a MarianMT model (such as OPUS-MT) and compare results.

    If the model has several target languages, write the language code before each text:
    ">>deu<< Good morning."

    Examples:
        transduce import huggingface opus-mt-en-de --out opus
    """
    from transduce.exporters.command import import_folder

    print(import_folder(folder, out))


COMMANDS: dict[str, Command] = {"export": export, "import": import_model}
