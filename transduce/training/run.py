"""A training run as the user sees it: its records, its scores and its best model."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from transduce.monitoring.metrics import History, read_metrics
from transduce.monitoring.records import Record
from transduce.storage.installed import find_bundle
from transduce.training.run_state import RunState
from transduce.translation.translator import Translator


class Run:
    """The folder of a training run. Every property reads the current files."""

    def __init__(self, path: str | Path, state: RunState | None = None) -> None:
        self.path = Path(path)
        self.state = state  # the state at the end of the `train` call that returned this object

    @property
    def history(self) -> History:
        """The records of the run so far."""
        return read_metrics(self.path)

    @property
    def step(self) -> int:
        """The last step that was recorded."""
        return self.history.step

    @property
    def best(self) -> dict[str, Any]:
        """The validation record with the best BLEU and then the lowest loss.

        Empty before the first validation.
        """
        return self.history.best

    def metrics(self, kind: str | None = "step") -> list[Record]:
        """Return the records of a kind, "step", "validation" or None for all, as table rows.

        For example pandas.DataFrame(run.metrics()).
        """
        history = self.history
        return history.records if kind is None else history.of(kind)

    @property
    def bundle(self) -> Path:
        """The folder of the best model."""
        return find_bundle(self.path)

    def translator(self, **options: Any) -> Translator:
        """Return a translator for the best model; the options are those of `Translator`."""
        return Translator(self.path, **options)

    def _facts(self) -> dict[str, str]:
        history = self.history
        best = self.best
        total = history.attempt.get("total_steps", history.step)
        facts = {
            "run": str(self.path),
            "status": history.status,
            "step": f"{history.step:,} of {total:,}",
        }

        # The newest loss and the best score, as soon as there are any.
        losses = history.losses()["training"]
        if losses:
            facts["training loss"] = f"{losses[-1][1]:.3f}"
        if best:
            facts["best validation"] = f"{_score(best)} at step {best['step']:,}"
        return facts

    def __repr__(self) -> str:
        facts = [f"{name}: {fact}" for name, fact in self._facts().items()]
        return f"Run({', '.join(facts)})"

    def _repr_html_(self) -> str:
        rows = [
            f"<tr><th>{name}</th><td>{html.escape(fact)}</td></tr>"
            for name, fact in self._facts().items()
        ]
        return f"<table>{''.join(rows)}</table>"


def _score(validation: Record) -> str:
    if validation.get("bleu") is not None:
        return f"BLEU {validation['bleu']:.1f}"
    return f"loss {validation['loss']:.3f}"
