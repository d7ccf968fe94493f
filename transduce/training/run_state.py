"""Where a run stands: what it remembers besides tensors, and whether that is its end."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from transduce.config import TrainingConfig


class End(NamedTuple):
    """Why a run is at its end, and with what it would go on."""

    why: str
    goes_on: str


@dataclass
class RunState:
    """What a run remembers besides tensors; saved in every checkpoint."""

    step: int = 0
    best: float = -math.inf  # the best validation score, more is better
    best_loss: float = math.inf  # of equal scores the one with the lower loss is better
    judged_by: str = ""  # what the scores are: bleu or loss
    best_step: int = 0
    stale: int = 0  # validations since then
    validated: int = 0  # the step of the last validation
    # What that one found by name, more is better.
    latest: dict[str, float] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)  # of all validations, by step
    skipped: int = 0  # steps that were not finite, in all
    skipped_in_a_row: int = 0
    # The signal that ended this attempt, known when all is saved, and so not saved.
    stopped_by: str = ""
    hooks: dict[str, str] = field(default_factory=dict)  # functions that were handed in, by name
    # Fingerprints: the ids of another tokenizer mean other text.
    tokenizers: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """JSON has no infinity: what is not known yet is null."""
        known = {
            name: None if value in (math.inf, -math.inf) else value
            for name, value in asdict(self).items()
        }
        del known["stopped_by"]
        return known

    @staticmethod
    def from_json(progress: dict[str, Any]) -> RunState:
        """Back from a checkpoint."""
        known = {
            item.name: progress[item.name]
            for item in fields(RunState)
            if progress.get(item.name) is not None
        }
        return RunState(**known)

    def verdict(self, training: TrainingConfig) -> End | None:
        """Whether the scores end the run: those of a validation at this very step, by the settings of now."""
        if self.validated != self.step:
            return None
        name, least = training.goal or ("", 0.0)
        if self.latest.get(name, -math.inf) >= (-least if name == "loss" else least):
            return End(
                f"reached {training.until} at step {self.step:,}",
                "with another training.until (--until), or none",
            )
        if 0 < training.patience <= self.stale:
            why = f"no better score since step {self.best_step:,}: patience ended"
            return End(why, "with more training.patience, or 0 for no end of it")
        return None

    def end(self, training: TrainingConfig) -> End | None:
        """Whether the scores or the number of steps end the run."""
        done = (
            End(f"{self.step:,} steps done", "with more training.steps")
            if self.step >= training.steps
            else None
        )
        return self.verdict(training) or done
