"""Score the models of a run, and report it: on the validation set, the test set, and old text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from transduce.config import Recipe
from transduce.data.batches import Layout
from transduce.data.store import Store
from transduce.monitoring.progress import Progress
from transduce.storage.bundle import Bundle
from transduce.training.diagnosis import diagnose
from transduce.training.distributed import World
from transduce.training.fine_tuning import (
    describe_change,
    describe_missing_text,
    find_old_store,
    scores_of,
)
from transduce.training.hooks import Hooks
from transduce.training.run_state import RunState
from transduce.training.signals import Signals
from transduce.training.validation import Validation, check_search, validate

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Scorer:
    """Scores weights of one run. A signal to any rank raises `Interrupted` on all."""

    recipe: Recipe
    store: Store
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
        (by default all) share the work, and each gets the result.
        """
        if self.store.validation.pairs == 0:
            return None
        training = self.recipe.training
        work = "translating" if training.validation_sentences else "computing the loss of"
        subject = "the validation set"
        if averaged:
            subject += f" with the average of the {training.average} {averaged} checkpoints"
        self._announce(f"{work} {subject}")

        result = self._validate(weights, self.store, world or self.world)
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

    def score_test(self, weights: Weights) -> Validation:
        """Score weights on the test set, on this rank alone, and report the scores."""
        self._announce("the best model on the test set")
        result = self._validate(weights, self.store, self.world.alone(), test=True)
        self._report(result, kind="test", signature=result.signature)
        return result

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

    def score_old_again(self, load: Callable[[], Weights], bundle: Bundle) -> None:
        """Report what fine-tuning did to the old text, if that was scored before.

        `load` returns the weights of the best model.
        """
        before = self.state.old_bleu
        old = find_old_store(bundle, self.state.tokenizers)
        if before is None or old is None:
            return
        after = self._score_old(load(), old, bundle)
        message = describe_change(before, after, str(bundle.path))
        self.progress.event(self.state.step, "old-text", message)

    def _score_old(self, weights: Weights, old: Store, bundle: Bundle) -> float:
        self._announce(f"translating the validation text of {bundle.path}")
        return self._validate(weights, old, self.world.alone()).bleu

    def _announce(self, work: str) -> None:
        self.progress.event(self.state.step, "validating", work)

    def _validate(
        self, weights: Weights, store: Store, world: World, *, test: bool = False
    ) -> Validation:
        # A new model: validation rounds its weights, and training must not notice.
        model = self._build(weights)
        return validate(model, store, self.recipe, world, self.signals, self.layout, test=test)

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
