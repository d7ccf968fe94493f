"""The state of a run besides its tensors, and the rules that decide when a run is complete."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from transduce.config import TrainingConfig


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
        """Return the state as JSON values. Infinities, which JSON does not have, become null."""
        values = asdict(self)
        del values["stopped_by"]
        return {
            name: None if value in (math.inf, -math.inf) else value
            for name, value in values.items()
        }

    @staticmethod
    def from_json(progress: dict[str, Any]) -> RunState:
        """Rebuild a state from the JSON values in a checkpoint."""
        values = {
            item.name: progress[item.name]
            for item in fields(RunState)
            if progress.get(item.name) is not None
        }
        return RunState(**values)

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
                how_to_continue="set another training.until (--until), or none",
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
