"""Model selection: validate the weights, keep the best and the last model, average checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.config import Recipe
from transduce.data.batches import Layout
from transduce.data.store import Store
from transduce.monitoring.hardware import hardware
from transduce.monitoring.progress import Progress
from transduce.storage.bundle import OWN_MODEL, save_bundle
from transduce.storage.checkpoint import average, best_checkpoints, checkpoints, verifies
from transduce.training.diagnosis import diagnose
from transduce.training.distributed import World
from transduce.training.hooks import Hooks
from transduce.training.run import RunState, StopReason
from transduce.training.signals import Interrupted, Signals
from transduce.training.validation import Validation, check_search, validate

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class ModelSelector:
    """Scores the models of one run and keeps the best.

    Every rank has one and reaches the same decisions; only rank 0 writes bundles.
    """

    recipe: Recipe
    store: Store
    run: Path
    world: World
    state: RunState
    progress: Progress
    signals: Signals
    hooks: Hooks
    layout: Layout

    def score(self, weights: Weights, world: World | None = None) -> Validation | None:
        """Validate weights and report the scores; return None if there is no validation set.

        The ranks of `world` (by default all) share the work, and each gets the result. A signal
        to any rank raises `Interrupted` on all.
        """
        if self.store.validation.pairs == 0:
            return None

        # A new model: validation rounds its weights, and training must not notice.
        world = world or self.world
        model = self._build(weights)
        result = validate(model, self.store, self.recipe, world, self.signals, self.layout)
        if not self.state.validated and result.hypotheses:
            self._check_search(weights)

        # Report the scores, and explain a BLEU of about 0.
        self.progress.validation(
            self.state.step,
            loss=result.loss,
            perplexity=result.perplexity,
            bleu=result.bleu,
            chrf=result.chrf,
            samples=result.samples,
        )
        if result.sources:
            diagnosis = diagnose(result.sources, result.references, result.hypotheses, result.bleu)
            if diagnosis:
                self.progress.event(self.state.step, "diagnosis", diagnosis)
        return result

    def _build(self, weights: Weights) -> Any:
        model = self.hooks.build_model(self.recipe.model).to(self.world.device)
        model.load_state_dict(weights)
        return model

    def _check_search(self, weights: Weights) -> None:
        """Warn if translations are searched with another model than the one that is trained."""
        if not self.world.is_main:
            return
        difference = check_search(partial(self._build, weights), self.store, self.world.device)
        if difference:
            self.progress.event(
                self.state.step,
                "advice",
                f"the search does not compute what training computes: {difference}; scores and "
                "translations of this run are wrong until forward, encode and decode of the model "
                "agree",
            )

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
        n = self.recipe.training.average_checkpoints
        if self.recipe.training.average == "last":
            return checkpoints(folder)[-n:]

        # Scores come from the run's state: a checkpoint was saved without its score if a signal
        # postponed its validation.
        return best_checkpoints(
            folder, n, lambda progress: self.state.scores.get(str(progress["step"]))
        )

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
        self.progress.event(
            self.state.step,
            "validating",
            f"the average of the {self.recipe.training.average} {len(paths)} checkpoints",
        )
        weights = average(paths)
        alone = World(0, 1, self.world.device)
        on_device = {name: weight.to(alone.device) for name, weight in weights.items()}
        try:
            result = self.score(on_device, alone)
        except Interrupted:
            signal_name = self.signals.received[0]
            return StopReason(
                f"{signal_name}: all steps are saved; run the same command again to finish",
                final=False,
            )

        # Keep the average unless an earlier model was better.
        self._save_bundle("last", result, weights)
        best = (self.state.best, -self.state.best_loss)
        if result is not None and (result.value(result.metric), -result.loss) >= best:
            self._save_bundle("best", result, weights)
        return reason

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
            "hardware": hardware(),
        }
        if "model" in self.hooks.names:
            provenance[OWN_MODEL] = self.hooks.names["model"]
        files = self.store.tokenizer_files
        save_bundle(self.run / name, self.recipe, weights, files, finite, provenance, replace=True)
