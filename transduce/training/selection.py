"""Model selection: validate the weights, keep the best and the last model, average checkpoints."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.config import Recipe
from transduce.data.batches import Layout
from transduce.data.store import Store
from transduce.data.tokenizer import is_own
from transduce.monitoring.hardware import hardware
from transduce.monitoring.progress import Progress
from transduce.monitoring.software import software
from transduce.storage.bundle import OWN_MODEL, Bundle, load_bundle, save_bundle
from transduce.storage.checkpoint import average, best_checkpoints, checkpoints, verifies
from transduce.storage.installed import find_bundle
from transduce.training.diagnosis import diagnose
from transduce.training.distributed import World
from transduce.training.fine_tuning import (
    describe_change,
    describe_missing_text,
    find_old_store,
    scores_of,
)
from transduce.training.hooks import Hooks
from transduce.training.run_state import RunState, StopReason
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

    def score(
        self, weights: Weights, world: World | None = None, *, averaged: int = 0
    ) -> Validation | None:
        """Validate weights and report the scores; return None if there is no validation set.

        `averaged` is the number of checkpoints whose average the weights are. The ranks of `world`
        (by default all) share the work, and each gets the result. A signal to any rank raises
        `Interrupted` on all.
        """
        if self.store.validation.pairs == 0:
            return None
        training = self.recipe.training
        work = "translating" if training.validation_sentences else "computing the loss of"
        subject = "the validation set"
        if averaged:
            subject += f" with the average of the {training.average} {averaged} checkpoints"
        self.progress.event(self.state.step, "validating", f"{work} {subject}")

        # A new model: validation rounds its weights, and training must not notice.
        world = world or self.world
        model = self._build(weights)
        result = validate(model, self.store, self.recipe, world, self.signals, self.layout)
        is_first = not self.state.validated and not self.state.start
        if is_first and result.hypotheses:
            self._check_search(weights)

        # Report the scores, and explain a BLEU of about 0.
        if averaged:
            self._report(result, kind="average", checkpoints=averaged)
        else:
            self._report(result)
        if result.sources:
            diagnosis = diagnose(result.sources, result.references, result.hypotheses, result.bleu)
            if diagnosis:
                self.progress.event(self.state.step, "diagnosis", diagnosis)
        return result

    def _report(self, result: Validation, **more: Any) -> None:
        self.progress.validation(
            self.state.step,
            loss=result.loss,
            perplexity=result.perplexity,
            bleu=result.bleu,
            chrf=result.chrf,
            samples=result.samples,
            **more,
        )

    def score_start(self, weights: Weights, bundle: Bundle) -> None:
        """Report the scores of a model before it is fine-tuned, also on its own old text."""
        result = self.score(weights)
        if result is not None:
            self.state.start = scores_of(result)
        if not self.world.is_main or not self.recipe.training.validation_sentences:
            return
        old = find_old_store(bundle, self.state.tokenizers)
        if old is None:
            message = describe_missing_text(str(bundle.path))
        else:
            bleu = self._score_old(weights, old, bundle)
            self.state.old_bleu = bleu
            message = f"BLEU {bleu:.1f} on the validation text of {bundle.path}, before fine-tuning"
        self.progress.event(self.state.step, "old-text", message)

    def score_old_again(self, bundle: Bundle) -> None:
        """Report what fine-tuning did to the old text, with the best model."""
        before = self.state.old_bleu
        old = find_old_store(bundle, self.state.tokenizers)
        if before is None or old is None or not self.world.is_main:
            return
        weights = load_bundle(find_bundle(self.run)).weights(self.world.device)
        after = self._score_old(weights, old, bundle)
        message = describe_change(before, after, str(bundle.path))
        self.progress.event(self.state.step, "old-text", message)

    def _score_old(self, weights: Weights, old: Store, bundle: Bundle) -> float:
        message = f"translating the validation text of {bundle.path}"
        self.progress.event(self.state.step, "validating", message)
        model = self._build(weights)
        alone = World(0, 1, self.world.device)
        return validate(model, old, self.recipe, alone, self.signals, self.layout).bleu

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
        weights = average(paths)
        alone = World(0, 1, self.world.device)
        on_device = {name: weight.to(alone.device) for name, weight in weights.items()}
        try:
            result = self.score(on_device, alone, averaged=len(paths))
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
            value = _shown(result.metric, result.value(result.metric))
            self.progress.event(
                state.step,
                "advice",
                f"averaging did not help: {value} with {len(paths)} checkpoints, but "
                f"{_shown(state.judged_by, state.best)} at step {state.best_step:,}, which stays "
                f"the best model; the average is in {self.run / 'last'}",
            )
        return reason

    def _postponed(self) -> StopReason:
        signal_name = self.signals.received[0]
        return StopReason(
            f"{signal_name}: all steps are saved; run the same command again to finish",
            final=False,
        )

    def score_test(self, reason: StopReason) -> StopReason:
        """Score the best model on the test set, if there is one, and put it into the bundle.

        Return the reason why training stops. A signal postpones the scoring.
        """
        if not self.world.is_main or not self.store.test.pairs:
            return reason
        self.progress.event(self.state.step, "validating", "the best model on the test set")
        place = find_bundle(self.run)
        bundle = load_bundle(place)
        weights = bundle.weights(self.world.device)
        alone = World(0, 1, self.world.device)
        model = self._build(weights)
        try:
            result = validate(
                model, self.store, self.recipe, alone, self.signals, self.layout, test=True
            )
        except Interrupted:
            return self._postponed()
        self._report(result, kind="test", signature=result.signature)
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

    def conclusion(self) -> str:
        """Return how good the best model is, and where it is."""
        state = self.state
        place = find_bundle(self.run)
        if not state.judged_by:
            return f"the model is in {place}; without [[data.validation]] it is not scored"
        origin = f"step {state.best_step:,}"
        if state.best_average:
            origin = f"the average of {state.best_average} checkpoints"
        message = f"{_shown(state.judged_by, state.best)} from {origin}, in {place}"
        if state.judged_by in state.start:
            message += f" ({state.start[state.judged_by]:.1f} before fine-tuning)"
        return message

    def next_step(self) -> str:
        """Return how to translate with the best model: a command, or Python for the user's code."""
        run = str(self.run)
        own_parts = []
        if self.hooks.model is not None:
            own_parts.append(f"model={self.hooks.names['model']}")
        if any(is_own(content) for content in self.store.tokenizer_files.values()):
            own_parts.append("tokenizer=tokenizer")
        if not own_parts:
            return f"transduce translate --model {shlex.quote(run)} 'A sentence.'"
        arguments = ", ".join([repr(run), *own_parts])
        return f"transduce.Translator({arguments}).translate('A sentence.')"

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
        if "model" in self.hooks.names:
            provenance[OWN_MODEL] = self.hooks.names["model"]
        files = self.store.tokenizer_files
        save_bundle(self.run / name, self.recipe, weights, files, finite, provenance, replace=True)


def _shown(metric: str, score: float) -> str:
    """Return a score as a user reads it; in the state, higher is better."""
    return f"loss {-score:.3f}" if metric == "loss" else f"BLEU {score:.1f}"
