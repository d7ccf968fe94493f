"""A run as an object to look at: where it stands, what it measured, and a translator of its best model."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from transduce.monitoring.metrics import History, Record, read_metrics
from transduce.storage.bundle import find_bundle
from transduce.training.run_state import RunState
from transduce.translation.translator import Translator


class Run:
    """The folder of a run. It is read when it is asked."""

    def __init__(self, path: str | Path, standing: RunState | None = None) -> None:
        self.path = Path(path)
        self.standing = standing  # where the call that trained it left off

    @property
    def history(self) -> History:
        """What happened so far."""
        return read_metrics(self.path)

    @property
    def step(self) -> int:
        """The last step that was recorded."""
        return self.history.step

    @property
    def best(self) -> dict[str, Any]:
        """The validation with the best BLEU, or without any the one with the lowest loss; empty before the first."""
        scored = self.history.of("validation")
        by_bleu = [record for record in scored if record.get("bleu") is not None]
        if by_bleu:
            return max(by_bleu, key=lambda record: float(record["bleu"]))
        known = [record for record in scored if record.get("loss") is not None]
        return min(known, key=lambda record: float(record["loss"]), default={})

    def metrics(self, kind: str | None = "step") -> list[Record]:
        """Rows for a table, such as pandas.DataFrame(run.metrics()): of steps, of "validation", or (None) of all."""
        history = self.history
        return history.records if kind is None else history.of(kind)

    @property
    def bundle(self) -> Path:
        """The folder of its best model."""
        return find_bundle(self.path)

    def translator(self, **options: Any) -> Translator:
        """A translator of its best model, with the options of `Translator`."""
        return Translator(self.path, **options)

    def _facts(self) -> dict[str, str]:
        history, best = self.history, self.best
        total = history.attempt.get("total_steps", history.step)
        facts = {
            "run": str(self.path),
            "status": history.status,
            "step": f"{history.step:,} of {total:,}",
        }
        losses = history.losses()["training"]
        if losses:
            facts["training loss"] = f"{losses[-1][1]:.3f}"
        if best:
            score = (
                f"BLEU {best['bleu']:.1f}"
                if best.get("bleu") is not None
                else f"loss {best['loss']:.3f}"
            )
            facts["best validation"] = f"{score} at step {best['step']:,}"
        return facts

    def __repr__(self) -> str:
        return "Run(" + ", ".join(f"{name}: {fact}" for name, fact in self._facts().items()) + ")"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{name}</th><td>{html.escape(fact)}</td></tr>"
            for name, fact in self._facts().items()
        )
        return f"<table>{rows}</table>"
