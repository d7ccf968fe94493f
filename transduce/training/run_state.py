"""The state of a run besides its tensors, and the rules that decide when the run is complete."""

from __future__ import annotations

import math
import typing
from dataclasses import asdict, dataclass, field
from typing import Any

from transduce.config import TrainingConfig
from transduce.monitoring.records import MOST_STEPS, is_number

FORMAT = 2  # of the state as JSON
HIGHEST_SCORE = 100.01  # of BLEU and chrF: 100, and room for rounding


@dataclass(frozen=True)
class StopReason:
    """Why training stops. A final stop completes the run; after any other, the run can resume."""

    message: str
    final: bool = True
    how_to_continue: str = ""  # the settings with which a completed run would train further


@dataclass
class RunState:
    """The state of a run besides its tensors. Every checkpoint contains it as JSON."""

    step: int = 0
    best: float = -math.inf  # the best validation score; higher is better
    best_loss: float = math.inf  # breaks ties: of two equal scores, the lower loss is better
    judged_by: str = ""  # the metric of the scores: bleu or loss
    best_step: int = 0
    # The number of checkpoints whose average is the best model; 0: it is that of `best_step`.
    best_average: int = 0
    start: dict[str, float] = field(default_factory=dict)  # scores before fine-tuning, by metric
    # BLEU before fine-tuning on the validation text of the run that is fine-tuned.
    old_bleu: float | None = None
    stale: int = 0  # validations since the best one
    validated: int = 0  # the step of the last validation
    # The scores of the last validation by metric; higher is better.
    latest: dict[str, float] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)  # the score of each validation, by step
    skipped: int = 0  # all steps whose gradient was not finite
    skipped_in_a_row: int = 0
    # The signal that stopped this attempt. It arrives before the last save, but is not saved.
    stopped_by: str = ""
    hooks: dict[str, str] = field(default_factory=dict)  # the names of custom functions, by role
    # Fingerprints. With another tokenizer, the same token ids would mean other text.
    tokenizers: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values. Infinities, which JSON does not have, become null.

        In memory a higher score is better; in JSON a loss is written as it is.
        """
        values = asdict(self)
        del values["stopped_by"]
        values = {**_negate_losses(values), "format": FORMAT}
        return {
            name: None if value in (math.inf, -math.inf) else value
            for name, value in values.items()
        }

    @staticmethod
    def from_json(progress: Any) -> RunState:
        """Rebuild a state from the JSON values in a checkpoint.

        Values that training would not have written raise a ValueError. Names that the state does
        not have, from another version, are left out.
        """
        if not isinstance(progress, dict):
            raise ValueError("it is not a JSON object")
        values = {}
        for name, hint in typing.get_type_hints(RunState).items():
            value = progress.get(name)
            if value is None:
                continue  # an infinity, or the default
            if not _fits(value, hint):
                raise ValueError(f"{name} is {str(value)[:40]!r}; expected {_TYPES[hint]}")
            values[name] = value
        if "step" not in values:
            raise ValueError("it has no step")
        if progress.get("format", 1) != 1:  # the first format had negated losses
            values = _negate_losses(values)
        state = RunState(**values)
        state._check()
        return state

    def _check(self) -> None:
        """Raise a ValueError for values that contradict each other or cannot be scores."""
        if self.judged_by not in ("", "bleu", "loss"):
            raise ValueError(f"judged_by is {self.judged_by[:40]!r}; expected 'bleu' or 'loss'")
        for name in ("best_step", "validated"):
            if getattr(self, name) > self.step:
                raise ValueError(f"{name} is {getattr(self, name):,}, after step {self.step:,}")

        # In memory a higher score is better, so a loss is negative.
        scores = [("latest", metric, value) for metric, value in self.latest.items()]
        scores += [("scores", self.judged_by, value) for value in self.scores.values()]
        if math.isfinite(self.best):
            scores.append(("best", self.judged_by, self.best))
        for name, metric, value in scores:
            if metric == "loss" and value > 0:
                raise ValueError(
                    f"{name} has the loss {-value:.4g}; expected one that is not negative"
                )
            if metric in ("bleu", "chrf") and not 0 <= value < HIGHEST_SCORE:
                raise ValueError(f"{name} has the score {value:.4g}; expected one from 0 to 100")

    def stop_by_score(self, training: TrainingConfig) -> StopReason | None:
        """Return why the scores end the run under the current settings, or None.

        Only a validation at the current step counts.
        """
        if self.validated != self.step:
            return None

        # A score has reached its goal.
        metric, goal = training.goal or ("", 0.0)
        needed = -goal if metric == "loss" else goal
        if self.latest.get(metric, -math.inf) >= needed:
            return StopReason(
                f"reached {training.until} at step {self.step:,}",
                how_to_continue="set another training.until, or none",
            )

        # The scores have stopped improving.
        if 0 < training.patience <= self.stale:
            return StopReason(
                f"no better score since step {self.best_step:,} (training.patience)",
                how_to_continue="raise training.patience, or set it to 0 to train on",
            )
        return None

    def stop_reason(self, training: TrainingConfig) -> StopReason | None:
        """Return why the scores or the number of steps complete the run, or None."""
        reason = self.stop_by_score(training)
        if reason is None and self.step >= training.steps:
            return StopReason(f"{self.step:,} steps done", how_to_continue="raise training.steps")
        return reason


def _negate_losses(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a state with the opposite sign of every loss among its scores."""
    changed = dict(values)
    latest = dict(values.get("latest", {}))
    if "loss" in latest:
        changed["latest"] = {**latest, "loss": -latest["loss"]}
    if values.get("judged_by") == "loss":
        if "best" in values:
            changed["best"] = -values["best"]
        changed["scores"] = {step: -score for step, score in values.get("scores", {}).items()}
    return changed


# The types of the state's values, in words.
_TYPES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    float | None: "a number",
    str: "a text",
    list[str]: "a list of texts",
    dict[str, str]: "texts by name",
    dict[str, float]: "numbers by name",
}


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a JSON value is of a type that the state has."""
    if hint is int:
        return type(value) is int and 0 <= value <= MOST_STEPS
    if hint in (float, float | None):
        return is_number(value)
    if hint is str:
        return isinstance(value, str)
    if hint == list[str]:
        return isinstance(value, list) and all(_fits(item, str) for item in value)
    kind = float if hint == dict[str, float] else str
    return isinstance(value, dict) and all(_fits(item, kind) for item in value.values())
