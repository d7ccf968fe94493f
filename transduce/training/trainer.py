"""The loop: step, report, validate, save. It decides only when; what happens is elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import Recipe
from transduce.data.batches import Layout
from transduce.data.sampler import Sampler
from transduce.data.store import Store
from transduce.describe import count_flops
from transduce.errors import CheckpointError, ConfigError, HookError, RankError, lacks_memory
from transduce.kernels.accelerate import accelerate, deviation
from transduce.monitoring.hardware import peak_flops
from transduce.monitoring.metrics import FILE_NAME
from transduce.monitoring.progress import Progress
from transduce.storage.bundle import Bundle
from transduce.storage.checkpoint import BackgroundSaver, load_newest, step_of
from transduce.storage.run_lock import held
from transduce.training.cuda_graph import GraphedStep
from transduce.training.diagnosis import divergence_advice, settings_advice
from transduce.training.distributed import OutOfMemory, World, distribute
from transduce.training.hooks import Hooks
from transduce.training.memory import fitting_micro_batches, recompute, too_few
from transduce.training.meter import Meter
from transduce.training.prefetch import Prefetcher
from transduce.training.run_folder import (
    claim,
    ended,
    fit_to_store,
    mark_finished,
    refuse_another,
    refuse_removed,
)
from transduce.training.run_state import RunState
from transduce.training.selection import Ending, Judge
from transduce.training.signals import Interrupted, Signals, watched_signals
from transduce.training.state_dict import collect, load_weights, restore, spread, whole
from transduce.training.step import Learner, MicroBatch, StepResult, train_step

MOST_SKIPPED = 10  # steps in a row that were not finite, after which the run stops


def run_training(
    recipe: Recipe,
    store: Store,
    run: Path,
    world: World,
    *,
    start_from: Bundle | None = None,
    hooks: Hooks | None = None,
) -> RunState:
    """Train until the recipe is fulfilled or a signal comes; a run that was begun goes on where it was."""
    recipe = fit_to_store(recipe, store)
    with held(run) if world.speaks else nullcontext():
        if world.speaks:
            refuse_another(run, recipe)
        if standing := ended(run, recipe, _tokenizers(store), world):
            return standing
        trainer = Trainer(recipe, store, run, world, start_from, hooks or Hooks())
        if world.speaks:
            claim(run, recipe, start_from)
        return trainer.run_to_end()


class Trainer:
    """A run: the model and its optimizers, where it stands, and the folder it is written to."""

    def __init__(
        self,
        recipe: Recipe,
        store: Store,
        run: Path,
        world: World,
        start_from: Bundle | None,
        hooks: Hooks,
    ) -> None:
        self.recipe, self.store, self.run, self.world, self.hooks = recipe, store, run, world, hooks
        training = recipe.training
        self.rate = hooks.rate(recipe)
        self.micro_batches = fitting_micro_batches(recipe, world, run)  # before memory is taken
        torch.manual_seed(training.seed)
        self.model: Any = hooks.build_model(recipe.model).to(world.device)
        acceleration = accelerate(self.model, world.device)
        if training.recompute:
            recompute(self.model)
        self.bf16 = training.precision == "bf16" or (
            training.precision == "auto"
            and world.device.type == "cuda"
            and torch.cuda.is_bf16_supported()
        )
        # Which rounds what it gathers itself.
        sharded = world.size > 1 and training.sharding == "fsdp"
        learner = Learner(
            self.model, training.eps_ls, bf16=self.bf16 and not sharded, loss=hooks.loss
        )
        self.learner = distribute(
            learner.train(), self.model, training.sharding, world, bf16=self.bf16
        )
        self.optimizers = hooks.build_optimizers(self.learner.named_parameters(), training)
        self.standing = RunState(tokenizers=_tokenizers(store), hooks=hooks.names)
        self.ema: dict[str, Tensor] = {}
        self.messages: list[tuple[str, str]] = []  # kinds of events, and what they say
        self._resume(start_from)
        self.messages += [("advice", advice) for advice in settings_advice(training)]
        self.layout: Layout = "packed" if acceleration.packs else "padded"
        self.plan = Sampler.of(recipe, store, self.layout)
        python = self._part_of_python(learner)
        if world.device.type == "cuda":
            graph = f"; no CUDA graph: {python}" if python else "; the step is one CUDA graph"
            self.messages.append(("kernels", f"{acceleration}{graph}"))
        if hooks.optimizers is not None:
            names = ", ".join(type(each).__name__ for each in self.optimizers)
            self.messages.append(
                ("advice", f"the schedule sets the learning rate of {names}, not its own lr")
            )
        graphed = world.device.type == "cuda" and not python
        self._graph = (
            GraphedStep(learner, self.optimizers, training, world.device) if graphed else None
        )

    def _part_of_python(self, learner: Learner) -> str | None:
        """Why a step cannot be captured as one CUDA graph: something in it is decided by Python at every step."""
        training = self.recipe.training
        reasons = {
            "several ranks": self.world.size > 1,
            "training.optimizer is muon": training.optimizer == "muon",
            "training.recompute": training.recompute,
            "optimizers of your own": self.hooks.optimizers is not None,
            "a loss of your own": learner.loss is not None,
            "rows of many lengths": self.layout == "padded",
        }
        found = deviation(self.model) if self.world.size == 1 and not training.recompute else None
        return next((reason for reason, holds in reasons.items() if holds), found)

    def run_to_end(self) -> RunState:
        """Steps until the end, a goal, patience or a signal."""
        standing = self.standing
        saver = BackgroundSaver(
            self.run / "checkpoints", keep=self.recipe.training.keep_checkpoints
        )
        with (
            self._progress() as progress,
            self.world.naming_the_lost(),
            saver,
            watched_signals() as signals,
        ):
            for kind, message in self.messages:
                progress.event(standing.step, kind, message)
            if self._graph is not None:
                progress.event(
                    standing.step, "compiling", "the kernels, and the step as one CUDA graph"
                )
            judge = Judge(
                self.recipe,
                self.store,
                self.run,
                self.world,
                standing,
                progress,
                signals,
                self.hooks,
                self.layout,
            )
            try:
                ending = self._loop(judge, saver, signals)
            except HookError as error:
                if self.world.size == 1 and standing.step:
                    self._save(judge, saver)
                    saver.wait()
                    raise HookError(
                        f"{error}; step {standing.step:,} is saved, and the run can go on"
                    ) from error
                raise
            saver.wait()
            if ending.final and not self.ema:
                ending = judge.finish(ending)
            if ending.final:
                progress.finish(standing.step, ending.message)
                if self.world.speaks:
                    mark_finished(self.run, standing)
            else:
                progress.event(standing.step, "stop", ending.message)
                # torchrun starts again who leaves with a status, were it a single rank.
                if self.world.size == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
                    standing.stopped_by = signals.seen[0] if signals.seen else ""
        return standing

    def _loop(self, judge: Judge, saver: BackgroundSaver, signals: Signals) -> Ending:
        training, standing, progress = self.recipe.training, self.standing, judge.progress
        interval = Meter(progress, self.rate)
        self._validate(judge)  # a signal may have kept it from being done, and may again
        ending, settled = self._stopped(judge) or self._judged(), standing.step
        while not ending and standing.step < training.steps:
            feed = Prefetcher(self.plan, self.world, self.micro_batches, standing.step + 1)
            try:
                for item in feed:
                    result = self._step(item.micro_batches, item.target_tokens, item.step)
                    standing.step = item.step
                    interval.add(result, item.source_tokens, feed.waited)
                    saver.look()
                    if any(
                        map(
                            self._due,
                            (training.report_every, training.validate_every, training.save_every),
                        )
                    ):
                        refuse_removed(self.run)
                        self._note_skips(interval.write(standing.step), progress)
                    ending, settled = self._settle(judge, saver, interval), standing.step
                    if ending or standing.step >= training.steps:
                        break
                    interval.resume()
            except RuntimeError as error:
                if not lacks_memory(error):
                    raise
                self._halve(
                    progress, together=self.world.size == 1 or isinstance(error, OutOfMemory)
                )
            finally:
                feed.close()
            # There was no room to validate or to save; here the error's frames are gone.
            if settled < standing.step:
                ending, settled = self._settle(judge, saver, interval), standing.step
        return ending or Ending(True, f"{standing.step:,} steps done")

    def _settle(self, judge: Judge, saver: BackgroundSaver, interval: Meter) -> Ending | None:
        """After a step: validate and save, if they are due, and whether that or a signal is a reason to stop."""
        self._validate(judge)
        ending = self._stopped(judge) or self._judged()
        scored = (
            self.recipe.training.average == "best" and self.standing.validated == self.standing.step
        )
        # Or the last good checkpoint would make room for the same again.
        good = self.standing.skipped_in_a_row < 2
        if ending or scored or (good and self._due(self.recipe.training.save_every)):
            # What a checkpoint is the result of, the records have: also where a signal ends the run.
            self._note_skips(interval.write(self.standing.step), judge.progress)
            self._save(judge, saver)
        return ending

    def _stopped(self, judge: Judge) -> Ending | None:
        """If a signal has come to any rank, or a callback wants the run to end."""
        signals, asked = judge.signals, judge.progress.end_wanted
        if not self.world.any(bool(signals.seen) or asked):
            return None
        name = (
            "a callback"
            if asked
            else signals.seen[0]
            if signals.seen
            else "a signal to another rank"
        )
        return Ending(False, f"{name}: saved; the same command goes on from here")

    def _judged(self) -> Ending | None:
        """If the scores are a reason to stop."""
        end = self.standing.verdict(self.recipe.training)
        return Ending(True, end.why) if end else None

    def _validate(self, judge: Judge) -> None:
        """If it is due and not yet done: scores and bundles."""
        if (
            not self._due(self.recipe.training.validate_every)
            or self.standing.validated == self.standing.step
        ):
            return
        if self._stopped(judge):
            return
        weights = whole(self.ema) if self.ema else collect(self.learner, self.optimizers)["model"]
        if self.store.validation.pairs:
            what = "translating" if self.recipe.training.validation_sentences else "the loss of"
            judge.progress.event(self.standing.step, "validating", f"{what} the validation set")
        with suppress(Interrupted):
            judge.keep(judge.score(weights), weights)

    def _due(self, every: int) -> bool:
        return self.standing.step % every == 0 or self.standing.step == self.recipe.training.steps

    def _step(
        self, micro_batches: Sequence[MicroBatch], target_tokens: int, step: int
    ) -> StepResult:
        rate = self.rate(step)
        if self._graph is not None:
            result = self._graph(micro_batches, target_tokens, step, rate)
        else:
            training = self.recipe.training
            result = train_step(
                self.learner,
                self.optimizers,
                micro_batches,
                target_tokens,
                training,
                step,
                rate,
                self.world,
            )
        if self.recipe.training.ema:
            weights = {name: weight.detach() for name, weight in self.model.named_parameters()}
            if not self.ema:
                self.ema = {name: weight.clone() for name, weight in weights.items()}
            torch._foreach_lerp_(
                list(self.ema.values()), list(weights.values()), 1 - self.recipe.training.ema
            )
        return result

    def _halve(self, progress: Progress, together: bool) -> None:
        """Twice as many micro-batches of half the size: the same gradient in less memory.

        A rank that is alone with its error cannot: the others wait for it in the middle of a step. It leaves a note.
        """
        if self.micro_batches >= 1024:
            raise ConfigError(
                f"out of memory with {self.micro_batches} micro-batches a step; choose a smaller model"
            ) from None
        if not together:
            too_few(self.run, self.world, self.micro_batches).touch()
            raise RankError(
                f"rank {self.world.rank} ran out of memory with {self.micro_batches} micro-batches a step; started "
                f"again, as torchrun --max-restarts does, the run goes on with {2 * self.micro_batches}"
            ) from None
        self.micro_batches *= 2
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if self._graph is not None:
            self._graph.forget()
        torch.cuda.empty_cache()
        message = f"out of memory: each step now takes {self.micro_batches} micro-batches, with the same gradient"
        progress.event(self.standing.step, "out-of-memory", message)

    def _note_skips(self, skipped: list[bool], progress: Progress) -> None:
        """Count steps that were not finite; too many in a row end the run, and the last checkpoint is good."""
        standing, advice = self.standing, divergence_advice(self.recipe, bf16=self.bf16)
        for step, was_skipped in enumerate(skipped, standing.step - len(skipped) + 1):
            standing.skipped += was_skipped
            standing.skipped_in_a_row = standing.skipped_in_a_row + 1 if was_skipped else 0
            if standing.skipped_in_a_row >= MOST_SKIPPED:
                raise CheckpointError(
                    f"{MOST_SKIPPED} steps in a row were not finite, the last is {step:,}; {advice}"
                )
        if any(skipped):
            message = (
                f"{standing.skipped} so far, for want of a finite gradient; if it goes on, {advice}"
            )
            progress.event(standing.step, "skipped", message)

    def _save(self, judge: Judge, saver: BackgroundSaver) -> None:
        """Every rank collects, rank 0 writes."""
        groups = collect(self.learner, self.optimizers)
        if self.ema:
            groups["ema"] = whole(self.ema)
        if self.world.speaks:
            saver.wait()  # so that the last one counts among the best
            protect = (
                [step_of(path) for path in judge.averaged()]
                if self.recipe.training.average == "best"
                else []
            )
            saver.save(self.standing.step, groups, self.standing.to_json(), protect)

    def _resume(self, start_from: Bundle | None) -> None:
        found = load_newest(self.run / "checkpoints")
        if not self.world.agrees(found.step if found else 0):
            raise CheckpointError(
                f"rank {self.world.rank} finds step {found.step if found else 0:,} in {self.run}, other ranks another; "
                "expected a folder that all machines share"
            )
        if found is not None:
            groups = {group: found.tensors(group) for group in found.groups}
            self.standing = RunState.from_json(found.progress)
            self._refuse_other_hooks()
            restore(self.learner, self.optimizers, groups)
            self.ema = spread(groups["ema"], self.model) if "ema" in groups else {}
            if self.standing.tokenizers != _tokenizers(self.store):
                raise ConfigError(
                    f"{self.run} was begun with another tokenizer than that of {self.store.path}; "
                    "choose another folder with --run, or go on with the first store"
                )
            passed_over = (
                f", the newest whole checkpoint: {'; '.join(found.damaged)}"
                if found.damaged
                else ""
            )
            self.messages.append(("resumed", f"goes on after step {found.step:,}{passed_over}"))
            return
        # Killed before its first save, or somebody removed what it saved.
        if (self.run / FILE_NAME).exists():
            self.messages.append(
                ("started", f"anew: {self.run} was begun before, but holds no checkpoint")
            )
        if start_from is not None:
            new = load_weights(
                self.learner, start_from.weights(), partly=self.hooks.model is not None
            )
            without = (
                f", but for {len(new)} weights that it has not, such as {new[0]}" if new else ""
            )
            self.messages.append(
                ("started", f"from {start_from.path}, with its model and its tokenizer{without}")
            )

    def _refuse_other_hooks(self) -> None:
        """A run goes on only with the functions that it was begun with."""
        begun, now = self.standing.hooks, self.hooks.names
        for name in sorted(begun.keys() | now.keys()):
            if begun.get(name) != now.get(name):
                before, after = (hooks.get(name, "the recipe's") for hooks in (begun, now))
                raise ConfigError(
                    f"{self.run} was begun with {name} {before}, not {after}; hand in the same again, or choose "
                    "another folder for a new run"
                )

    def _progress(self) -> Progress:
        if not self.world.speaks:
            return Progress.silent()
        name = torch.cuda.get_device_name() if self.world.device.type == "cuda" else "cpu"
        peak = peak_flops(name)
        return Progress(
            self.run, self.recipe, self.recipe.training.steps, self.standing.step,
            count_flops(self.recipe.model).training, peak * self.world.size if peak else None, tensorboard=True,
            tell=self.hooks.tell,
        )  # fmt: skip


def _tokenizers(store: Store) -> list[str]:
    return [tokenizer.fingerprint for tokenizer in (store.source_tokenizer, store.target_tokenizer)]
