"""What a claim is: a statement, an experiment that gives numbers, and a verdict with a plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from transduce.config import DataConfig
from transduce.errors import ConfigError
from transduce.paper.chart import line_chart
from transduce.translation.translator import Translator

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """A plot as plain data, so that a result can hold it."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Points]
    log_x: bool = False
    log_y: bool = False

    def svg(self) -> str:
        """Draw it."""
        return line_chart(
            self.title,
            self.curves,
            x_label=self.x_label,
            y_label=self.y_label,
            log_x=self.log_x,
            log_y=self.log_y,
        )


@dataclass(frozen=True)
class Finding:
    """What an experiment has found about a claim."""

    holds: bool | None  # None: it cannot be judged from this
    verdict: str  # in a sentence, with the numbers that decide
    charts: Sequence[Chart] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Context:
    """What an experiment may use."""

    out: Path  # the folder of all results
    device: torch.device
    effort: float = 1.0  # share of the steps that claims with training take
    translator: Translator | None = None  # of the user's trained model
    data: DataConfig | None = None  # the user's text

    def needs_translator(self) -> Translator:
        """Return the translator, or say that a model is missing."""
        if self.translator is None:
            raise ConfigError("this claim looks inside a trained model; give one with --model")
        return self.translator

    def steps(self, full: int) -> int:
        """Return the number of training steps."""
        return max(2, round(full * self.effort))


@dataclass(frozen=True)
class Claim:
    """A statement, where it comes from, and the experiment."""

    statement: str
    source: str  # such as §3.2.1
    experiment: Callable[[Context], Finding]
    needs_model: bool = False
