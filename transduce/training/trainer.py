"""The training loop: step, report, validate, save. It decides when; other modules do the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import torch

from transduce.config import Recipe
from transduce.data.sampler import Sampler
from transduce.data.store import Store
from transduce.describe import count_flops
from transduce.errors import CheckpointError, HookError, lacks_memory
from transduce.monitoring.hardware import measure_flops, peak_flops
from transduce.monitoring.progress import Progress
from transduce.storage.background_saver import BackgroundSaver
from transduce.storage.bundle import Bundle, load_bundle
from transduce.storage.installed import find_bundle
from transduce.storage.lock import lock_run
from transduce.training.conclusion import conclusion, next_step
from transduce.training.diagnosis import divergence_advice
from transduce.training.distributed import OutOfMemory, World
from transduce.training.hooks import Hooks
from transduce.training.learning import Learning
from transduce.training.memory import choose_micro_batches, more_micro_batches
from transduce.training.meter import Meter
from transduce.training.plan import plan, settings_events
from transduce.training.prefetch import Prefetcher
from transduce.training.resume import resume_or_start, tokenizer_fingerprints
from transduce.training.run_folder import (
    check_not_removed,
    check_same_recipe,
    claim_folder,
    find_finished,
    mark_finished,
    read_teacher,
    set_vocabulary_sizes,
)
from transduce.training.run_state import RunState, StopReason
from transduce.training.scoring import Scorer, Weights
from transduce.training.selection import ModelSelector
from transduce.training.signals import Interrupted, Signals, catch_signals
from transduce.training.step import MicroBatch, StepResult
from transduce.training.timetable import Timetable

MOST_SKIPPED = 10  # steps in a row with a gradient that is not finite, after which the run stops


def run_training(
    recipe: Recipe,
    store: Store,
    run: Path,
    world: World,
    *,
    start_from: Bundle | None = None,
    hooks: Hooks | None = None,
) -> RunState:
    """Train until the run is complete or a signal arrives; resume a run that was started."""
    recipe = set_vocabulary_sizes(recipe, store)
    with lock_run(run) if world.is_main else nullcontext():
        if world.is_main:
            check_same_recipe(run, recipe)
        finished = find_finished(run, recipe, tokenizer_fingerprints(store), world)
        if finished is not None:
            return finished
        trainer = Trainer(recipe, store, run, world, start_from, hooks or Hooks())
        if world.is_main:
            claim_folder(run, recipe, start_from)
        return trainer.run_to_end()


class Trainer:
    """A run in training: the model, its optimizers, the state of the run and its folder."""

    def __init__(
        self,
        recipe: Recipe,
        store: Store,
        run: Path,
        world: World,
        start_from: Bundle | None,
        hooks: Hooks,
    ) -> None:
        self.recipe = recipe
        self.store = store
        self.run = run
        self.world = world
        self.hooks = hooks
        self.start_from = start_from
        self.schedule = hooks.build_schedule(recipe)
        self.timetable = Timetable(recipe.training)
        # Estimated before the model takes memory.
        self.micro_batches = choose_micro_batches(recipe, world, run)
        self.learning = Learning(recipe, world, hooks)

        # The state of the run: new, or that of the newest checkpoint.
        self.state, events = resume_or_start(run, self.learning, store, hooks, world, start_from)
        # Events to report, (kind, message), as soon as the progress is open.
        self.events = [*events, *settings_events(recipe, self.learning, world.device)]
        self.sampler = Sampler.of(recipe, store, self.learning.layout)

    def _plan(self) -> str:
        """Return how long the run is, in epochs and in time, and its precision."""
        epochs = self.recipe.training.steps / max(self.sampler.steps_per_epoch, 1)
        speed = measure_flops(self.world.device, bf16=self.learning.bf16) * self.world.size
        estimate = plan(self.recipe, self.store.train.pairs, epochs, speed)
        return f"{estimate}; precision: {self.learning.precision}"

    def run_to_end(self) -> RunState:
        """Train until the last step, a goal, the end of patience, or a signal."""
        state = self.state
        saver = BackgroundSaver(
            self.run / "checkpoints", keep=self.recipe.training.keep_checkpoints
        )
        with (
            self._open_progress() as progress,
            self.world.naming_lost_ranks(),
            saver,
            catch_signals() as signals,
        ):
            # Report what happened while the run was set up.
            for kind, message in self.events:
                progress.event(state.step, kind, message)
            if not state.step and self.world.is_main:
                progress.event(state.step, "plan", self._plan())
            if self.learning.graph is not None:
                progress.event(state.step, "compiling", "kernels, and the step as one CUDA graph")
            selector = self._build_selector(progress, signals)

            # Train. A mistake in a callback costs no step.
            try:
                reason = self._loop(selector, saver)
            except HookError as error:
                if self.world.size > 1 or not state.step:
                    raise
                self._save(selector, saver)
                saver.wait()
                raise HookError(
                    f"{error}; step {state.step:,} is saved, and the run can be resumed"
                ) from error
            saver.wait()
            self._end(reason, selector)
        return state

    def _build_selector(self, progress: Progress, signals: Signals) -> ModelSelector:
        scorer = Scorer(
            self.recipe,
            self.store,
            self.world,
            self.state,
            progress,
            signals,
            self.hooks,
            self.learning.layout,
        )
        return ModelSelector(
            self.recipe,
            self.store,
            self.run,
            self.world,
            self.state,
            progress,
            self.hooks,
            scorer,
            self.start_from,
            read_teacher(self.run),
        )

    def _end(self, reason: StopReason, selector: ModelSelector) -> None:
        """Complete the run, or report how it was stopped."""
        if reason.final and not self.learning.ema:
            reason = selector.finish(reason)
        if reason.final:
            reason = selector.score_test(reason)
        if reason.final:
            if self.world.is_main:
                self._conclude(selector)
            how_to_translate = next_step(self.run, self.store, self.hooks)
            selector.progress.finish(self.state.step, reason.message, how_to_translate)
            if self.world.is_main:
                mark_finished(self.run, self.state)
        else:
            selector.progress.event(self.state.step, "stop", reason.message)
            self._note_signal(selector.scorer.signals)

    def _conclude(self, selector: ModelSelector) -> None:
        """Report the best model, and what fine-tuning has changed."""
        if self.start_from is not None:
            with suppress(Interrupted):
                selector.scorer.score_old_again(self._best_weights, self.start_from)
        selector.progress.event(self.state.step, "best", conclusion(self.state, self.run))

    def _best_weights(self) -> Weights:
        return load_bundle(find_bundle(self.run)).weights(self.world.device)

    def _note_signal(self, signals: Signals) -> None:
        """Remember the signal that stopped this attempt: it decides the exit status.

        Under torchrun the exit status stays 0, because torchrun restarts processes that fail.
        """
        under_torchrun = self.world.size > 1 or "TORCHELASTIC_RUN_ID" in os.environ
        if signals.received and not under_torchrun:
            self.state.stopped_by = signals.received[0]

    def _loop(self, selector: ModelSelector, saver: BackgroundSaver) -> StopReason:
        """Take steps until there is a reason to stop; return it."""
        training = self.recipe.training
        state = self.state
        meter = Meter(selector.progress, self.schedule)

        # A model that is fine-tuned has scores already.
        if self.start_from is not None and not state.step and self.hooks.model is None:
            with suppress(Interrupted):
                selector.scorer.score_start(self.learning.weights(), self.start_from)

        # A signal may have interrupted the validation of this step, and may do so again.
        self._validate(selector)
        reason = self._interruption(selector) or state.stop_by_score(training)
        completed = state.step  # the last step that was also validated and saved, if due

        while not reason and state.step < training.steps:
            prefetcher = Prefetcher(self.sampler, self.world, self.micro_batches, state.step + 1)
            try:
                for item in prefetcher:
                    # Take the step.
                    result = self._step(item.micro_batches, item.target_tokens, item.step)
                    state.step = item.step
                    meter.add(result, item.source_tokens, prefetcher.idle_seconds)
                    saver.look()  # raises if the last save failed

                    # Report before validating and saving, which do not count as step time.
                    if self.timetable.report_is_due(state.step):
                        check_not_removed(self.run)
                        self._count_skipped(meter.report(state.step), selector.progress)
                    reason = self._complete_step(selector, saver, meter)
                    completed = state.step
                    if reason or state.step >= training.steps:
                        break
                    meter.restart_clock()
            except RuntimeError as error:
                if not lacks_memory(error):
                    raise
                all_ranks_know = self.world.size == 1 or isinstance(error, OutOfMemory)
                self._halve_micro_batches(selector.progress, all_ranks_know)
            finally:
                prefetcher.close()

            # If memory ran out while validating or saving, try again here, where the tensors that
            # the error's frames held are free.
            if completed < state.step:
                reason = self._complete_step(selector, saver, meter)
                completed = state.step
        return reason or StopReason(f"{state.step:,} steps done")

    def _complete_step(
        self, selector: ModelSelector, saver: BackgroundSaver, meter: Meter
    ) -> StopReason | None:
        """Validate and save after a step, if they are due; return why to stop, or None."""
        training = self.recipe.training
        self._validate(selector)
        reason = self._interruption(selector) or self.state.stop_by_score(training)

        # Every scored step is saved if the best checkpoints are averaged. While steps are being
        # skipped nothing changes, and saving would displace the last good checkpoint.
        scored = training.average == "best" and self.state.validated == self.state.step
        healthy = self.state.skipped_in_a_row < 2
        if reason or scored or (healthy and self.timetable.save_is_due(self.state.step)):
            # The records must contain every step that a checkpoint contains.
            self._count_skipped(meter.report(self.state.step), selector.progress)
            self._save(selector, saver)
        return reason

    def _interruption(self, selector: ModelSelector) -> StopReason | None:
        """Return a reason to stop if any rank got a signal or a callback asks for it."""
        # All ranks must decide alike, so they agree on whether any has a reason.
        received = selector.scorer.signals.received
        requested = selector.progress.stop_requested
        if not self.world.any(bool(received) or requested):
            return None
        if requested:
            cause = "a callback"
        elif received:
            cause = received[0]
        else:
            cause = "a signal to another rank"
        return StopReason(
            f"{cause}: the run is saved; run the same command again to resume", final=False
        )

    def _validate(self, selector: ModelSelector) -> None:
        """Validate and keep the model, if that is due and not yet done."""
        step = self.state.step
        if self.state.validated == step or not self.timetable.validation_is_due(step):
            return
        # After a signal, save first: the validation is repeated when the run resumes.
        if self._interruption(selector):
            return

        weights = self.learning.weights()
        # An interrupted validation leaves the state as it was.
        with suppress(Interrupted):
            selector.keep(selector.scorer.score(weights), weights)

    def _step(
        self, micro_batches: Sequence[MicroBatch], target_tokens: int, step: int
    ) -> StepResult:
        return self.learning.step(micro_batches, target_tokens, step, self.schedule(step))

    def _halve_micro_batches(self, progress: Progress, all_ranks_know: bool) -> None:
        """Use twice as many micro-batches of half the size: the same gradient, less memory."""
        self.micro_batches = more_micro_batches(
            self.micro_batches, self.run, self.world, all_ranks_know=all_ranks_know
        )
        self.learning.forget_step()
        progress.event(
            self.state.step,
            "out-of-memory",
            f"each step now uses {self.micro_batches} micro-batches, with the same gradient",
        )

    def _count_skipped(self, skipped: list[bool], progress: Progress) -> None:
        """Count the skipped steps among the last ones; end the run after too many in a row."""
        state = self.state
        advice = divergence_advice(self.recipe, bf16=self.learning.bf16)
        first_step = state.step - len(skipped) + 1
        for step, was_skipped in enumerate(skipped, first_step):
            state.skipped += was_skipped
            state.skipped_in_a_row = state.skipped_in_a_row + 1 if was_skipped else 0
            if state.skipped_in_a_row >= MOST_SKIPPED:
                raise CheckpointError(
                    f"the gradients of {MOST_SKIPPED} steps in a row were not finite, the last at "
                    f"step {step:,}; {advice}"
                )
        if any(skipped):
            progress.event(
                state.step,
                "skipped",
                f"{state.skipped} steps so far, whose gradients were not finite; if this "
                f"continues, {advice}",
            )

    def _save(self, selector: ModelSelector, saver: BackgroundSaver) -> None:
        """Save a checkpoint: every rank collects, rank 0 writes."""
        groups = self.learning.collect()
        if not self.world.is_main:
            return

        saver.wait()  # so that the previous checkpoint counts among the best
        saver.save(self.state.step, groups, self.state.to_json(), selector.steps_to_protect())

    def _open_progress(self) -> Progress:
        if not self.world.is_main:
            return Progress.silent()
        device_name = "cpu"
        if self.world.device.type == "cuda":
            device_name = torch.cuda.get_device_name()
        # The share of the peak speed is shown where the peak is known.
        peak = peak_flops(device_name)
        return Progress(
            self.run,
            self.recipe,
            self.recipe.training.steps,
            self.state.step,
            count_flops(self.recipe.model).training,
            peak * self.world.size if peak else None,
            tensorboard=True,
            run_callbacks=self.hooks.run_callbacks,
            store=self.store.path,
        )
