"""The result of a walkthrough: plain data, which JSON, the page and a notebook can show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from transduce.inspection.walkthrough.source_code import Code

VERSION = 1  # of the JSON
SHOWN_COLUMNS = 32  # of vectors that the page only draws
# The arrays that are cut to so many columns in JSON: nothing is computed from them.
WIDE = ("embedding", "encoding", "sum", "input", "sublayer", "inner", "output")
Value = np.ndarray[Any, Any] | list[str]


@dataclass(frozen=True)
class Step:
    """One step: what happens, why, by which formula, in which lines of code, with which numbers."""

    name: str
    title: str
    section: str  # of the paper
    explanation: str
    formula: str  # MathML
    code: Code
    data: dict[str, Value]

    def to_dict(self) -> dict[str, Any]:
        """Return the step as JSON values; wide arrays are cut to `SHOWN_COLUMNS` columns."""
        data = {name: _to_json(name, value) for name, value in self.data.items()}
        return asdict(self) | {"data": data}


@dataclass(frozen=True, repr=False)
class Walkthrough:
    """One translation, step by step. `layer` and `head`, counted from 1, are those shown."""

    model: dict[str, Any]
    text: str
    translation: str
    notices: tuple[str, ...]
    layer: int
    head: int
    source: list[str]  # the tokens, the last one is the end
    target: list[str]
    steps: tuple[Step, ...]

    def __getitem__(self, name: str) -> Step:
        """Return the step of this name."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    def __repr__(self) -> str:
        return (
            f"Walkthrough({self.text!r} -> {self.translation!r}, layer {self.layer}, head "
            f"{self.head}, {len(self.steps)} steps)"
        )

    def _repr_html_(self) -> str:
        """Show the steps in a notebook: title, explanation, formula and code, without numbers."""
        parts = [f"<p>{escape(self.text)} → <strong>{escape(self.translation)}</strong></p>"]
        for number, step in enumerate(self.steps, start=1):
            code = f"{step.code.file}, line {step.code.first_line}"
            parts.append(
                f"<details><summary>{number}. {escape(step.title)} (§{step.section})</summary>"
                f"<p>{escape(step.explanation)}</p>{step.formula}<p><code>{code}</code></p>"
                f"<pre>{escape(step.code.lines)}</pre></details>"
            )
        return "".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "version": VERSION,
            "model": self.model,
            "text": self.text,
            "translation": self.translation,
            "notices": [*self.notices],
            "layer": self.layer,
            "head": self.head,
            "source": self.source,
            "target": self.target,
            "steps": [step.to_dict() for step in self.steps],
        }


def _to_json(name: str, value: Value) -> Any:
    """Return an array with its shape, rounded to five digits after the point."""
    if isinstance(value, list):
        return value
    whole = value.shape[-1] if value.ndim else 0
    entry: dict[str, Any] = {}
    if name in WIDE and whole > SHOWN_COLUMNS:
        value = value[..., :SHOWN_COLUMNS]
        entry = {"columns": SHOWN_COLUMNS, "of": whole}
    rounded = value if value.dtype.kind == "i" else np.round(value.astype(float), 5)
    return {"shape": [*value.shape], "data": rounded.ravel().tolist(), **entry}
