"""What a person watches of a run: every report becomes one record, shown, written and plotted by its outlets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from transduce.config import Recipe
from transduce.errors import TransduceError
from transduce.monitoring.hardware import hardware
from transduce.monitoring.metrics import MetricsFile, Record, new_record
from transduce.monitoring.report import write_report
from transduce.monitoring.terminal import Display
from transduce.recipe import to_toml

Sample = tuple[str, str, str]  # source, reference, hypothesis


class Outlet(Protocol):
    """Somewhere a record goes."""

    def write(self, record: Record) -> None: ...
    def close(self) -> None: ...


class Progress:
    """Reports of one attempt at a run, which begins after `start_step`. Only rank 0 has a real one.

    flops_per_token   of training on one source and one target token (`count_flops(config).training`)
    peak_flops        per second, of all devices together; None where it is not known
    tell              hands a record to the callbacks, and says whether one of them wants the run to end
    """

    def __init__(
        self,
        run: Path,
        recipe: Recipe,
        total_steps: int,
        start_step: int,
        flops_per_token: float,
        peak_flops: float | None,
        tensorboard: bool,
        tell: Callable[[Record], bool] | None = None,
    ) -> None:
        self._run = run
        self._recipe = recipe
        self._total_steps = total_steps
        self._start_step = self._last_step = start_step
        self._flops_per_token = flops_per_token
        self._peak_flops = peak_flops
        self._tensorboard = tensorboard
        self._tell_callbacks = tell
        self.end_wanted = False  # by a callback
        self._speaks = True
        self._display: Display | None = None
        self._outlets: list[Outlet] = []
        self._failed: list[Outlet] = []
        self._anchor: tuple[float, int] | None = None  # time and step of the first report
        self._stopped = False

    @classmethod
    def silent(cls) -> Progress:
        """One that shows and writes nothing, for the other ranks."""
        silent = cls(Path(), Recipe(), 0, 0, 0.0, None, False)
        silent._speaks = False
        return silent

    def __enter__(self) -> Progress:
        if not self._speaks:
            return self
        metrics = MetricsFile(self._run)
        board = _open_board(self._run, self._start_step) if self._tensorboard else None
        self._display = Display(self._total_steps)
        self._outlets = [self._display, metrics, *([board] if board else [])]
        self._tell(
            "resume" if self._start_step else "start",
            self._start_step,
            run=str(self._run),
            total_steps=self._total_steps,
            flops_per_token=self._flops_per_token,
            peak_flops=self._peak_flops,
            recipe=to_toml(self._recipe),
            hardware=hardware(),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._display is not None:  # first: what ends the program, it says itself
            with suppress(OSError):
                self._display.close()
            self._outlets.remove(self._display)
        if kind is not None and not self._stopped:
            mistake = isinstance(error, TransduceError)  # and not a bug, whose name matters
            self.event(
                self._last_step, "stop", str(error) if mistake else f"{kind.__name__}: {error}"
            )
        for outlet in self._outlets:
            with suppress(OSError):
                outlet.close()
        self._outlets, self._display = [], None

    def step(
        self,
        step: int,
        *,
        loss: float,
        perplexity: float,
        learning_rate: float,
        gradient_norm: float,
        target_tokens: int,
        source_tokens: int,
        step_seconds: float,
        data_seconds: float,
    ) -> None:
        """The steps since the last report: means of the first four, sums of the others over all ranks.

        `step_seconds` is all the time the steps took, `data_seconds` the part of it spent waiting for data.
        """
        steps = step - self._last_step
        seconds = max(step_seconds, 1e-9)
        flops = self._flops_per_token * (source_tokens + target_tokens) / 2
        self._last_step = step
        self._tell(
            "step",
            step,
            steps=steps,
            loss=loss,
            perplexity=perplexity,
            learning_rate=learning_rate,
            gradient_norm=gradient_norm,
            target_tokens=target_tokens,
            source_tokens=source_tokens,
            step_seconds=step_seconds,
            target_tokens_per_second=target_tokens / seconds,
            data_share=data_seconds / seconds,
            flops=flops,
            peak_share=flops / seconds / self._peak_flops if self._peak_flops else None,
            seconds_left=self._seconds_left(step, step_seconds / max(steps, 1)),
        )

    def validation(
        self,
        step: int,
        *,
        loss: float,
        perplexity: float,
        bleu: float,
        chrf: float,
        samples: Sequence[Sample],
    ) -> None:
        """Scores on the validation set, and a few translations to look at."""
        shown = [
            [text.encode("utf-8", "replace").decode() for text in sample] for sample in samples
        ]
        self._tell(
            "validation",
            step,
            loss=loss,
            perplexity=perplexity,
            bleu=bleu,
            chrf=chrf,
            samples=shown,
        )

    def event(self, step: int, kind: str, message: str) -> None:
        """Something happened: started, resumed, advice, skipped, out-of-memory, diagnosis, stop.

        A kind that ends in -ing (compiling, validating) lasts, and is shown with its time, until the next report.
        """
        self._stopped = kind == "stop"
        self._tell("event", step, event=kind, message=message)

    def finish(self, step: int, message: str) -> None:
        """The run is complete: the last record, and the report."""
        self._tell("finish", step, message=message)
        if not self._speaks:
            return
        try:
            self._say(f"report: {write_report(self._run)}")
        except (OSError, TransduceError) as error:  # a run is not lost for want of a page about it
            self._say(f"no report could be written: {error}")

    def _seconds_left(self, step: int, first_pace: float) -> float:
        """By the clock since the first report, so that validation counts and compilation does not."""
        now = time.monotonic()
        if self._anchor is None:
            self._anchor = (now, step)
        since, first = self._anchor
        pace = (now - since) / (step - first) if step > first else first_pace
        return round(pace * (self._total_steps - step), 1)

    def _say(self, message: str) -> None:
        if self._display is not None:
            with suppress(OSError):
                self._display.say(message)

    def _tell(self, kind: str, step: int, **values: Any) -> None:
        record = new_record(kind, step, values)
        for outlet in self._outlets:
            try:
                outlet.write(record)
            except OSError as error:  # a full disk or a closed terminal must not end the training
                if outlet not in self._failed:
                    self._failed.append(outlet)
                    self._say(f"{error}; training goes on, with gaps in its records")
        if self._speaks and self._tell_callbacks is not None:
            tell, self._tell_callbacks = (
                self._tell_callbacks,
                None,
            )  # one that raises is not called again
            self.end_wanted |= tell(record)
            self._tell_callbacks = tell


def _open_board(run: Path, start_step: int) -> Outlet | None:
    """TensorBoard's files beside the run, where it is installed."""
    try:
        from transduce.monitoring.tensorboard import Board
    except ImportError:
        return None
    return Board(run, start_step)
