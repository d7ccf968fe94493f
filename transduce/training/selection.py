"""Model selection: keep the best and the last model, average checkpoints, score the final model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.config import Recipe
from transduce.data.store import Store
from transduce.monitoring.hardware import hardware
from transduce.monitoring.progress import Progress
from transduce.monitoring.software import software
from transduce.storage.bundle import OWN_MODEL, Bundle, load_bundle, save_bundle
from transduce.storage.checkpoint import (
    average,
    best_checkpoints,
    checkpoints,
    step_of,
    verifies,
)
from transduce.storage.installed import find_bundle
from transduce.storage.model_card import TEACHER
from transduce.training.conclusion import shown
from transduce.training.distributed import World
from transduce.training.fine_tuning import scores_of
from transduce.training.hooks import Hooks
from transduce.training.run_state import RunState, StopReason
from transduce.training.scoring import Scorer, Weights
from transduce.training.signals import Interrupted
from transduce.training.timetable import Timetable
from transduce.training.validation import Validation


@dataclass(frozen=True)
class ModelSelector:
    """Keeps the models of one run.

    Every rank has one and reaches the same decisions; only rank 0 writes bundles.
    """

    recipe: Recipe
    store: Store
    run: Path
    world: World
    state: RunState
    progress: Progress
    hooks: Hooks
    scorer: Scorer
    start_from: Bundle | None  # the model that is fine-tuned
    teacher: dict[str, Any] | None  # what is known about the model whose translations are learned

    def keep(self, result: Validation | None, weights: Weights) -> None:
        """Record the scores; save the weights as the last bundle, and as the best if they are."""
        state = self.state
        state.validated = state.step
        self._save_bundle("last", result, weights)
        if result is None:
            return

        # BLEU and loss cannot be compared: forget the scores of another metric.
        if state.judged_by not in ("", result.metric):
            state.best = -math.inf
            state.best_loss = math.inf
            state.stale = 0
            state.scores = {}
        state.judged_by = result.metric

        # Record the scores of this step.
        values = {name: result.value(name) for name in ("bleu", "chrf", "loss")}
        state.latest = {name: value for name, value in values.items() if math.isfinite(value)}
        score = result.value(result.metric)
        if math.isfinite(score):
            state.scores[str(state.step)] = score

        # Early in training BLEU is often exactly 0, so the loss breaks ties.
        better = (score, -result.loss) > (state.best, -state.best_loss)
        if not better:
            state.stale += 1
            return
        state.stale = 0
        state.best = score
        state.best_loss = result.loss
        state.best_step = state.step
        self._save_bundle("best", result, weights)

    def checkpoints_to_average(self) -> list[Path]:
        """Return the checkpoints whose mean is the final model (§6.1): the last n or the best n."""
        folder = self.run / "checkpoints"
        training = self.recipe.training
        n = training.average_checkpoints
        if training.average == "last":
            # Others were saved because of a signal; a run without signals does not have them.
            regular = [path for path in checkpoints(folder) if self._is_regular(step_of(path))]
            return regular[-n:]

        # Scores come from the run's state: a checkpoint was saved without its score if a signal
        # postponed its validation.
        return best_checkpoints(
            folder, n, lambda progress: self.state.scores.get(str(progress["step"]))
        )

    def steps_to_protect(self) -> list[int]:
        """Return the steps of those checkpoints, when the present step is saved next."""
        steps = [step_of(path) for path in self.checkpoints_to_average()]
        training = self.recipe.training
        if training.average == "last" and Timetable(training).save_is_due(self.state.step):
            steps = [*steps, self.state.step][-training.average_checkpoints :]
        return steps

    def _is_regular(self, step: int) -> bool:
        return Timetable(self.recipe.training).save_is_due(step) or step == self.state.step

    def finish(self, reason: StopReason) -> StopReason:
        """Save the average of checkpoints as the last bundle, and as the best if none was better.

        Return the reason why training stops. A signal postpones the averaging, and with it the
        end of the run.
        """
        # Leave out damaged checkpoints; a single one is already the last model.
        if not self.world.is_main:
            return reason
        paths = [path for path in self.checkpoints_to_average() if self._verify(path)]
        if len(paths) < 2:
            return reason

        # Average and validate. The other ranks have left by now.
        weights = average(paths)
        on_device = {name: weight.to(self.world.device) for name, weight in weights.items()}
        try:
            result = self.scorer.score(on_device, self.world.alone(), averaged=len(paths))
        except Interrupted:
            return self._postponed()

        # Keep the average unless an earlier model was better.
        self._save_bundle("last", result, weights)
        if result is None:
            return reason
        state = self.state
        if (result.value(result.metric), -result.loss) >= (state.best, -state.best_loss):
            self._save_bundle("best", result, weights)
            state.best = result.value(result.metric)
            state.best_loss = result.loss
            state.best_average = len(paths)
        else:
            value = shown(result.metric, result.value(result.metric))
            self.progress.event(
                state.step,
                "advice",
                f"averaging did not help: {value} with {len(paths)} checkpoints, but "
                f"{shown(state.judged_by, state.best)} at step {state.best_step:,}, which stays "
                f"the best model; the average is in {self.run / 'last'}",
            )
        return reason

    def score_test(self, reason: StopReason) -> StopReason:
        """Score the best model on the test set, if there is one, and put it into the bundle.

        Return the reason why training stops. A signal postpones the scoring.
        """
        if not self.world.is_main or not self.store.test.pairs:
            return reason

        # Score the best model.
        place = find_bundle(self.run)
        bundle = load_bundle(place)
        weights = bundle.weights(self.world.device)
        try:
            result = self.scorer.score_test(weights)
        except Interrupted:
            return self._postponed()

        # Save its bundle again, with these scores.
        test = {
            "corpora": ", ".join(self.store.test.corpora),
            "sentences": self.store.test.pairs,
            **scores_of(result),
            "signature": result.signature,
        }
        save_bundle(
            place,
            bundle.recipe,
            weights,
            bundle.tokenizer_files,
            {**bundle.scores, "test": test},
            bundle.provenance,
            replace=True,
        )
        return reason

    def _postponed(self) -> StopReason:
        signal_name = self.scorer.signals.received[0]
        return StopReason(
            f"{signal_name}: all steps are saved; run the same command again to finish",
            final=False,
        )

    def _verify(self, path: Path) -> bool:
        intact = verifies(path)
        if not intact:
            self.progress.event(
                self.state.step, "advice", f"{path} is damaged and left out of the average"
            )
        return intact

    def _save_bundle(self, name: str, result: Validation | None, weights: Weights) -> None:
        if not self.world.is_main:
            return

        # The bundle carries its scores, and what it was trained with.
        scores: dict[str, float] = {}
        if result is not None:
            scores = {key: getattr(result, key) for key in ("loss", "perplexity", "bleu", "chrf")}
        finite = {key: value for key, value in scores.items() if math.isfinite(value)}
        provenance = {
            "step": self.state.step,
            "data": self.store.fingerprint,
            "corpora": {name: len(rows) for name, rows in self.store.train.corpora.items()},
            "hardware": hardware(),
            **software(),
        }
        if self.start_from is not None:
            provenance["started_from"] = (
                f"{self.start_from.name} ({self.start_from.fingerprint[:12]}); its licence and its "
                "training text count, too"
            )
        if self.teacher is not None:
            provenance[TEACHER] = self.teacher
        if "model" in self.hooks.names:
            provenance[OWN_MODEL] = self.hooks.names["model"]
        files = self.store.tokenizer_files
        save_bundle(self.run / name, self.recipe, weights, files, finite, provenance, replace=True)
