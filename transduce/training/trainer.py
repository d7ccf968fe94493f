"""The loop: step, report, validate, save. It decides only when; what happens is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from transduce.bundle import load_bundle, save_bundle
from transduce.checkpoint import BackgroundSaver, average, checkpoints, load_newest
from transduce.config import Recipe
from transduce.data.plan import Plan
from transduce.data.store import Store
from transduce.describe import count_flops
from transduce.errors import CheckpointError, ConfigError
from transduce.model import Transformer
from transduce.recipe import differences
from transduce.training.diagnosis import diagnose, divergence_advice
from transduce.training.feed import Feed, to_tokens
from transduce.training.graph import GraphedStep
from transduce.training.hardware import hardware, peak_flops
from transduce.training.interval import Interval
from transduce.training.memory import fitting_micro_batches, recompute
from transduce.training.optimiser import build_optimisers
from transduce.training.parallel import World, distribute, settle
from transduce.training.progress import Progress
from transduce.training.run import SHAPES, Standing, claim, fit_to_store, is_finished, mark_finished
from transduce.training.signals import watched_signals
from transduce.training.state import collect, load_weights, restore, spread, whole
from transduce.training.step import Learner, MicroBatch, StepResult, train_step
from transduce.training.validate import Validation, validate

MOST_SKIPPED = 10  # steps in a row that were not finite, after which the run stops


def train(recipe: Recipe, store: Store, run: Path, world: World, *, start_from: Path | None = None) -> Standing:
    """Train until the recipe is fulfilled or a signal comes; a run that was begun goes on where it was."""
    recipe = fit_to_store(recipe, store)
    if world.speaks:
        claim(run, recipe)
    trainer = Trainer(recipe, store, run, world, start_from)
    if is_finished(run, recipe):
        if world.speaks:
            print(f"{run} is finished: {trainer.standing.step:,} steps are done; raise training.steps to go on")
        return trainer.standing
    return trainer.run_to_end()


class Trainer:
    """A run: the model and its optimisers, where it stands, and the folder it is written to."""

    def __init__(self, recipe: Recipe, store: Store, run: Path, world: World, start_from: Path | None) -> None:
        self.recipe, self.store, self.run, self.world = recipe, store, run, world
        training = recipe.training
        torch.manual_seed(training.seed)
        self.model = Transformer(recipe.model).to(world.device)
        if training.recompute:
            recompute(self.model)
        bf16 = training.precision == "bf16" or (
            training.precision == "auto" and world.device.type == "cuda" and torch.cuda.is_bf16_supported()
        )
        sharded = world.size > 1 and training.sharding == "fsdp"  # which rounds what it gathers itself
        learner = Learner(self.model, training.eps_ls, bf16=bf16 and not sharded)
        self.learner = distribute(learner.train(), self.model, training.sharding, world, bf16=bf16)
        self.optimisers = build_optimisers(self.learner.named_parameters(), training)
        self.standing = Standing()
        self.ema: dict[str, Tensor] = {}
        self.messages: list[str] = []
        self._resume(start_from)
        self.plan = Plan(
            store,
            tokens_per_step=training.tokens_per_step,
            seed=training.seed,
            weights=[corpus.weight for corpus in recipe.data.corpora],
            temperature=recipe.data.temperature,
            # Packed rows suit the varlen kernel; without it attention is dense, and rows of one sentence are cheaper.
            layout="packed" if world.device.type == "cuda" else "padded",
        )
        self.micro_batches = training.micro_batches or fitting_micro_batches(recipe, world)
        if world.size > 1:
            first = self.plan.batch(0, world.rank, world.size * self.micro_batches)
            settle(self.learner, *to_tokens(first, world.device))
        graphed = world.size == 1 and world.device.type == "cuda" and training.optimiser != "muon"
        self._graph = GraphedStep(learner, self.optimisers, recipe, world.device) if graphed else None

    def run_to_end(self) -> Standing:
        """Steps until the end, a goal, patience or a signal."""
        standing = self.standing
        saver = BackgroundSaver(self.run / "checkpoints", keep=self.recipe.training.keep_checkpoints)
        with self._progress() as progress, saver, watched_signals() as signals:
            for message in self.messages:
                progress.event(standing.step, "resumed", message)
            ending = self._loop(progress, saver, signals)
            saver.wait()
            if ending.final:
                self._finish(progress)
                progress.finish(standing.step, ending.message)
                if self.world.speaks:
                    mark_finished(self.run, self.recipe, ending.message)
            else:
                progress.event(standing.step, "stop", ending.message)
        return standing

    def _loop(self, progress: Progress, saver: BackgroundSaver, signals: list[str]) -> Ending:
        training, standing = self.recipe.training, self.standing
        interval = Interval(progress, self.recipe)
        while standing.step < training.steps:
            feed = Feed(self.plan, self.world, self.micro_batches, standing.step + 1)
            try:
                for item in feed:
                    result = self._step(item.micro_batches, item.target_tokens, item.step)
                    standing.step = item.step
                    interval.add(result, item.source_tokens)
                    if self._due(training.report_every):
                        self._note_skips(interval.write(standing.step, feed.waited), progress)
                        feed.waited = 0.0
                    stop = self.world.any(bool(signals))
                    ending = self._validate(progress) if self._due(training.validate_every) and not stop else None
                    if stop or ending or self._due(training.save_every):
                        self._save(saver)
                    if stop:
                        name = signals[0] if signals else "a signal to another rank"
                        return Ending(False, f"{name}: saved; the same command goes on from here")
                    if ending or standing.step >= training.steps:
                        return ending or Ending(True, f"{training.steps:,} steps done")
                    interval.resume()
            except torch.OutOfMemoryError:
                self._halve(progress)
            finally:
                feed.close()
        return Ending(True, f"{training.steps:,} steps done")

    def _due(self, every: int) -> bool:
        return self.standing.step % every == 0 or self.standing.step == self.recipe.training.steps

    def _step(self, micro_batches: Sequence[MicroBatch], target_tokens: int, step: int) -> StepResult:
        if self._graph is not None:
            result = self._graph(micro_batches, target_tokens, step)
        else:
            result = train_step(
                self.learner, self.optimisers, micro_batches, target_tokens, self.recipe, step, self.world
            )
        if self.recipe.training.ema:
            weights = {name: weight.detach() for name, weight in self.model.named_parameters()}
            if not self.ema:
                self.ema = {name: weight.clone() for name, weight in weights.items()}
            torch._foreach_lerp_(list(self.ema.values()), list(weights.values()), 1 - self.recipe.training.ema)
        return result

    def _halve(self, progress: Progress) -> None:
        """Twice as many micro-batches of half the size: the same gradient in less memory."""
        if self.world.size > 1 or self.micro_batches >= 1024:
            raise ConfigError(
                f"out of memory with {self.micro_batches} micro-batches a step; set training.micro_batches higher"
            ) from None
        self.micro_batches *= 2
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        torch.cuda.empty_cache()
        message = f"out of memory: each step now takes {self.micro_batches} micro-batches, with the same gradient"
        progress.event(self.standing.step, "out-of-memory", message)

    def _note_skips(self, skipped: list[bool], progress: Progress) -> None:
        """Count steps that were not finite; too many in a row end the run, and the last checkpoint is good."""
        for was_skipped in skipped:
            self.standing.skipped += was_skipped
            self.standing.skipped_in_a_row = self.standing.skipped_in_a_row + 1 if was_skipped else 0
            if self.standing.skipped_in_a_row >= MOST_SKIPPED:
                raise CheckpointError(
                    f"{MOST_SKIPPED} steps in a row were not finite, the last is {self.standing.step:,}; "
                    f"{divergence_advice(self.recipe, self.standing.skipped)}"
                )
        if any(skipped):
            progress.event(self.standing.step, "skipped", divergence_advice(self.recipe, self.standing.skipped))

    def _validate(self, progress: Progress) -> Ending | None:
        """Scores, samples and bundles; whether that is a reason to stop."""
        training, standing = self.recipe.training, self.standing
        if self.store.validation.pairs == 0:
            self._save_bundle("last", None, self._weights())
            return None
        progress.event(standing.step, "validating", "translating the validation set")
        weights = self._weights()
        result = self._scores(weights, progress, self.world)
        better = result.value(result.judged_by) > standing.best
        standing.stale = 0 if better else standing.stale + 1
        if better:
            standing.best, standing.best_step = result.value(result.judged_by), standing.step
            self._save_bundle("best", result, weights)
        self._save_bundle("last", result, weights)
        if training.goal and result.value(training.goal[0]) >= _signed(*training.goal):
            return Ending(True, f"reached {training.until} at step {standing.step:,}")
        if training.patience and standing.stale >= training.patience:
            return Ending(
                True, f"no better score in {standing.stale} validations; the best was at step {standing.best_step:,}"
            )
        return None

    def _scores(self, weights: dict[str, Tensor], progress: Progress, world: World) -> Validation:
        """Validate these weights. Every rank of that world takes part, and has the result; only one speaks."""
        model = Transformer(self.recipe.model).to(self.world.device)
        model.load_state_dict(weights)
        result = validate(model, self.store, self.recipe, world)
        progress.validation(
            self.standing.step, loss=result.loss, perplexity=result.perplexity, bleu=result.bleu, chrf=result.chrf,
            samples=result.samples,
        )  # fmt: skip
        diagnosis = (
            diagnose(result.sources, result.references, result.hypotheses, result.bleu) if result.sources else None
        )
        if diagnosis:
            progress.event(self.standing.step, "diagnosis", diagnosis)
        return result

    def _finish(self, progress: Progress) -> None:
        """§6.1: the average of the last checkpoints is the model, unless an earlier one was better."""
        paths = checkpoints(self.run / "checkpoints")[-self.recipe.training.average_checkpoints :]
        if self.ema or len(paths) < 2 or not self.world.speaks:
            return
        weights = average(paths)
        if self.store.validation.pairs == 0:
            self._save_bundle("last", None, weights)
            return
        progress.event(self.standing.step, "validating", f"the average of the last {len(paths)} checkpoints")
        alone = World(0, 1, self.world.device)  # the other ranks have left
        result = self._scores({name: weight.to(alone.device) for name, weight in weights.items()}, progress, alone)
        self._save_bundle("last", result, weights)
        if result.value(result.judged_by) >= self.standing.best:
            self.standing.best, self.standing.best_step = result.value(result.judged_by), self.standing.step
            self._save_bundle("best", result, weights)

    def _weights(self) -> dict[str, Tensor]:
        return whole(self.ema) if self.ema else collect(self.learner, self.optimisers)["model"]

    def _save_bundle(self, name: str, result: Validation | None, weights: dict[str, Tensor]) -> None:
        if not self.world.speaks:
            return
        source, target = self.store.source_tokenizer, self.store.target_tokenizer
        files = (
            {"tokenizer.model": target.to_bytes()}
            if source is target
            else {"source.model": source.to_bytes(), "target.model": target.to_bytes()}
        )
        scores = {} if result is None else {key: getattr(result, key) for key in ("loss", "perplexity", "bleu", "chrf")}
        provenance = {"step": self.standing.step, "data": self.store.fingerprint, "hardware": hardware()}
        finite = {key: value for key, value in scores.items() if math.isfinite(value)}
        save_bundle(self.run / name, self.recipe, weights, files, finite, provenance, replace=True)

    def _save(self, saver: BackgroundSaver) -> None:
        """Every rank collects, rank 0 writes."""
        groups = collect(self.learner, self.optimisers)
        if self.ema:
            groups["ema"] = whole(self.ema)
        if self.world.speaks:
            saver.save(self.standing.step, groups, self.standing.to_json())

    def _resume(self, start_from: Path | None) -> None:
        found = load_newest(self.run / "checkpoints")
        if not self.world.agrees(found.step if found else 0):
            raise CheckpointError(
                f"rank {self.world.rank} finds step {found.step if found else 0:,} in {self.run}, other ranks another; "
                "expected a folder that all machines share"
            )
        if found is not None:
            groups = {group: found.tensors(group) for group in found.groups}
            restore(self.learner, self.optimisers, groups)
            self.ema = spread(groups["ema"], self.model) if "ema" in groups else {}
            self.standing = Standing.from_json(found.progress)
            self.messages += [*found.damaged, f"goes on after step {found.step:,}"]
        elif start_from is not None:
            bundle = load_bundle(start_from)
            changed = [name for name in differences(self.recipe, bundle.recipe) if name in SHAPES]
            if changed:
                raise ConfigError(f"{start_from} has another {', '.join(changed)}; fine-tuning needs the same model")
            load_weights(self.learner, bundle.weights())
            self.messages.append(f"starts from {start_from}")

    def _progress(self) -> Progress:
        if not self.world.speaks:
            return Progress.silent()
        name = torch.cuda.get_device_name() if self.world.device.type == "cuda" else "cpu"
        peak = peak_flops(name)
        return Progress(
            self.run, self.recipe, self.recipe.training.steps, self.standing.step,
            count_flops(self.recipe.model).training, peak * self.world.size if peak else None, tensorboard=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Ending:
    """Why the loop ended; a final one closes the run."""

    final: bool
    message: str


def _signed(name: str, value: float) -> float:
    return -value if name == "loss" else value
