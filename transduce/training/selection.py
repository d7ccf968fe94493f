"""How good a run is by now: scores of its weights, the best and the last as bundles, and whether that ends it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

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
from transduce.training.run_state import RunState
from transduce.training.signals import Interrupted, Signals
from transduce.training.validation import Validation, validate

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Ending:
    """Why the loop ended; a final one closes the run."""

    final: bool
    message: str


@dataclass(frozen=True)
class Judge:
    """Of one run. Every rank has one and comes to the same verdict; only rank 0 speaks and writes."""

    recipe: Recipe
    store: Store
    run: Path
    world: World
    standing: RunState
    progress: Progress
    signals: Signals
    hooks: Hooks
    layout: Layout

    def score(self, weights: Weights, world: World | None = None) -> Validation | None:
        """Validate weights, and leave no traces but in the records; None where there is nothing to validate on.

        The ranks of that world, by default all, share the work, and each has the result. A signal ends it on all.
        """
        if self.store.validation.pairs == 0:
            return None
        model = self.hooks.build_model(self.recipe.model).to(self.world.device)
        model.load_state_dict(weights)
        result = validate(
            model, self.store, self.recipe, world or self.world, self.signals, self.layout
        )
        self.progress.validation(
            self.standing.step, loss=result.loss, perplexity=result.perplexity, bleu=result.bleu, chrf=result.chrf,
            samples=result.samples,
        )  # fmt: skip
        diagnosis = (
            diagnose(result.sources, result.references, result.hypotheses, result.bleu)
            if result.sources
            else None
        )
        if diagnosis:
            self.progress.event(self.standing.step, "diagnosis", diagnosis)
        return result

    def keep(self, result: Validation | None, weights: Weights) -> None:
        """Take note of the scores; keep the weights as the last bundle, and as the best if they are."""
        standing = self.standing
        standing.validated = standing.step
        self._save_bundle("last", result, weights)
        if result is None:
            return
        values = {name: result.value(name) for name in ("bleu", "chrf", "loss")}
        standing.latest = {name: value for name, value in values.items() if math.isfinite(value)}
        score = result.value(result.judged_by)
        if standing.judged_by not in ("", result.judged_by):  # a BLEU and a loss cannot be compared
            standing.best, standing.best_loss, standing.stale, standing.scores = (
                -math.inf,
                math.inf,
                0,
                {},
            )
        standing.judged_by = result.judged_by
        if math.isfinite(score):
            standing.scores[str(standing.step)] = score
        better = (score, -result.loss) > (
            standing.best,
            -standing.best_loss,
        )  # early on, BLEU is 0 again and again
        standing.stale = 0 if better else standing.stale + 1
        if better:
            standing.best, standing.best_loss, standing.best_step = (
                score,
                result.loss,
                standing.step,
            )
            self._save_bundle("best", result, weights)

    def averaged(self) -> list[Path]:
        """The checkpoints whose mean is the final model (§6.1): the last n, or the n with the best scores."""
        folder, n = self.run / "checkpoints", self.recipe.training.average_checkpoints
        if self.recipe.training.average == "last":
            return checkpoints(folder)[-n:]
        # A checkpoint does not know its score if a signal put its validation off.
        return best_checkpoints(
            folder, n, lambda progress: self.standing.scores.get(str(progress["step"]))
        )

    def finish(self, ending: Ending) -> Ending:
        """The average of checkpoints becomes the last bundle, and the best unless an earlier one was better.

        A signal puts that off, and with it the end of the run.
        """
        if not self.world.speaks:
            return ending
        paths = [path for path in self.averaged() if self._whole(path)]
        if len(paths) < 2:
            return ending
        self.progress.event(
            self.standing.step, "validating",
            f"the average of the {self.recipe.training.average} {len(paths)} checkpoints",
        )  # fmt: skip
        weights = average(paths)
        alone = World(0, 1, self.world.device)  # the other ranks have left
        try:
            result = self.score(
                {name: weight.to(alone.device) for name, weight in weights.items()}, alone
            )
        except Interrupted:
            return Ending(
                False,
                f"{self.signals.seen[0]}: all steps are saved; the same command finishes the run",
            )
        self._save_bundle("last", result, weights)
        best = (self.standing.best, -self.standing.best_loss)
        if result is not None and (result.value(result.judged_by), -result.loss) >= best:
            self._save_bundle("best", result, weights)
        return ending

    def _whole(self, path: Path) -> bool:
        if not (whole := verifies(path)):
            self.progress.event(
                self.standing.step, "advice", f"{path} is damaged and left out of the average"
            )
        return whole

    def _save_bundle(self, name: str, result: Validation | None, weights: Weights) -> None:
        if not self.world.speaks:
            return
        scores = (
            {}
            if result is None
            else {key: getattr(result, key) for key in ("loss", "perplexity", "bleu", "chrf")}
        )
        finite = {key: value for key, value in scores.items() if math.isfinite(value)}
        provenance = {
            "step": self.standing.step,
            "data": self.store.fingerprint,
            "hardware": hardware(),
        }
        if "model" in self.hooks.names:
            provenance[OWN_MODEL] = self.hooks.names["model"]
        files = self.store.tokenizer_files
        save_bundle(self.run / name, self.recipe, weights, files, finite, provenance, replace=True)
