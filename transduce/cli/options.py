"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from transduce.cli.arguments import Help

Overrides: TypeAlias = Annotated[
    tuple[str, ...], Help("settings to change, such as model.N=2", value="SETTING=VALUE")
]
Model: TypeAlias = Annotated[
    Path, Help("a saved model (bundle), a run folder, or a name that transduce bundles lists")
]
DEFAULT_MODEL = "(default: en-de of the package, or else the newest one in ./runs)"
Beam: TypeAlias = Annotated[
    int | None, Help("beam size; 1 is greedy search (default: the setting of the model)")
]
Alpha: TypeAlias = Annotated[
    float | None,
    Help("length penalty, section 6.1 of the paper (default: the setting of the model)"),
]
Engine: TypeAlias = Annotated[
    Literal["auto", "torch", "ctranslate2"],
    Help("library that runs the model; auto uses the fastest one that is installed and suitable"),
]
Device: TypeAlias = Annotated[
    str | None, Help("cpu or cuda (default: a GPU if there is one)", value="DEVICE")
]
Precision: TypeAlias = Annotated[
    Literal["auto", "float32", "bf16", "fp16", "int8"],
    Help("numeric precision; auto uses int8 with CTranslate2, bf16 on a GPU and float32 otherwise"),
]
