"""When a run reports, validates and saves."""

from __future__ import annotations

from dataclasses import dataclass

from transduce.config import TrainingConfig


@dataclass(frozen=True)
class Timetable:
    """Says what is due after a step; everything is due after the last one."""

    training: TrainingConfig

    def report_is_due(self, step: int) -> bool:
        """Return whether to report: also before validating and saving, which are no step time."""
        training = self.training
        intervals = (training.report_every, training.validate_every, training.save_every)
        return any(self._is_due(interval, step) for interval in intervals)

    def validation_is_due(self, step: int) -> bool:
        """Return whether to validate."""
        return self._is_due(self.training.validate_every, step)

    def save_is_due(self, step: int) -> bool:
        """Return whether to save a checkpoint: the last ones, which are averaged, are closer."""
        training = self.training
        interval = training.save_every
        first_averaged = training.steps - training.average_checkpoints * interval + 1
        if training.early_save_every and step < first_averaged:
            interval = training.early_save_every
        return self._is_due(interval, step)

    def _is_due(self, interval: int, step: int) -> bool:
        return step % interval == 0 or step == self.training.steps
