"""Progress of a run: every report becomes a record for the terminal, a file and TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from transduce.config import Recipe
from transduce.errors import TransduceError
from transduce.monitoring.hardware import hardware
from transduce.monitoring.metrics import MetricsFile, TensorBoardSink
from transduce.monitoring.records import Record, new_record
from transduce.monitoring.report import write_report
from transduce.monitoring.terminal import Display
from transduce.recipe import to_toml

Sample = tuple[str, str, str]  # source, reference, hypothesis


class Sink(Protocol):
    """A destination of records."""

    def write(self, record: Record) -> None: ...
    def close(self) -> None: ...


class Progress:
    """The reports of one attempt at a run, which begins after `start_step`.

    Only rank 0 reports; the other ranks have a silent one.

    flops_per_token   of training on one source and one target token (`count_flops(...).training`)
    peak_flops        per second, of all devices together; None if unknown
    store             the folder of the token store, so that a later run can find the old text
    run_callbacks     passes a record to the callbacks; returns whether one asks to end the run
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
        run_callbacks: Callable[[Record], bool] | None = None,
        store: Path | None = None,
    ) -> None:
        self._run = run
        self._store = store
        self._recipe = recipe
        self._total_steps = total_steps
        self._start_step = start_step
        self._last_step = start_step
        self._flops_per_token = flops_per_token
        self._peak_flops = peak_flops
        self._tensorboard = tensorboard
        self._run_callbacks = run_callbacks
        self.stop_requested = False  # by a callback
        self._silent = False
        self._display: Display | None = None
        self._sinks: list[Sink] = []
        self._failed: list[Sink] = []
        self._first_report: tuple[float, int] | None = None  # its time and step
        self._stopped = False

    @classmethod
    def silent(cls) -> Progress:
        """Return a progress that shows and writes nothing, for the other ranks."""
        progress = cls(Path(), Recipe(), 0, 0, 0.0, None, False)
        progress._silent = True
        return progress

    def __enter__(self) -> Progress:
        if self._silent:
            return self
        # Open the file before the display: an error in it is then printed normally.
        metrics = MetricsFile(self._run)
        board = _open_tensorboard(self._run, self._start_step) if self._tensorboard else None
        self._display = Display(self._total_steps)
        self._sinks = [self._display, metrics]
        if board is not None:
            self._sinks.append(board)

        # The first record describes the attempt.
        self._record(
            "resume" if self._start_step else "start",
            self._start_step,
            run=str(self._run),
            store=str(self._store.absolute()) if self._store else None,
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
        # Close the display first: the program prints the error itself.
        if self._display is not None:
            with suppress(OSError):
                self._display.close()
            self._sinks.remove(self._display)

        # Record the error. A bug is recorded with the name of its class.
        if kind is not None and not self._stopped:
            expected = isinstance(error, TransduceError)
            message = str(error) if expected else f"{kind.__name__}: {error}"
            self.event(self._last_step, "stop", message)

        # A run that was stopped, or that diverged, has a report too.
        if not self._silent and self._last_step > self._start_step:
            self._write_report()

        for sink in self._sinks:
            with suppress(OSError):
                sink.close()
        self._sinks = []
        self._display = None

    def step(
        self,
        step: int,
        *,
        loss: float,
        perplexity: float,
        objective: float,
        learning_rate: float,
        gradient_norm: float,
        target_tokens: int,
        source_tokens: int,
        step_seconds: float,
        data_seconds: float,
    ) -> None:
        """Report the steps since the last report: means of the first five, sums of the others.

        `loss` is the cross-entropy, as in a validation; `objective` is what training minimizes,
        with label smoothing or by a custom loss. All are over all ranks. `step_seconds` is the
        time of the steps, and `data_seconds` the part of it spent waiting for data.
        """
        # Derive speed, shares and the remaining time from the sums.
        steps = step - self._last_step
        self._last_step = step
        seconds = max(step_seconds, 1e-9)
        flops = self._flops_per_token * (source_tokens + target_tokens) / 2
        self._record(
            "step",
            step,
            steps=steps,
            loss=loss,
            perplexity=perplexity,
            objective=objective,
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
        kind: Literal["validation", "average", "test"] = "validation",
        **more: Any,
    ) -> None:
        """Report scores on the validation set, and sample translations.

        `kind` is "average" for the average of checkpoints, and "test" for the test set; `more` are
        further values of such a record.
        """
        self._record(
            kind,
            step,
            **more,
            loss=loss,
            perplexity=perplexity,
            bleu=bleu,
            chrf=chrf,
            samples=[_encodable(sample) for sample in samples],
        )

    def event(self, step: int, kind: str, message: str) -> None:
        """Report an event: started, resumed, advice, skipped, out-of-memory, diagnosis, stop.

        A kind that ends in -ing (compiling, validating) lasts until the next report, and is shown
        with its duration.
        """
        self._stopped = kind == "stop"
        self._record("event", step, event=kind, message=message)

    def finish(self, step: int, message: str, next_step: str = "") -> None:
        """Report that the run is complete, and what the user may do next."""
        self._record("finish", step, message=message)
        if next_step:
            self._say(f"next: {next_step}")

    def _write_report(self) -> None:
        try:
            place = write_report(self._run)
            self._say(f"report: {place}")
        except (OSError, TransduceError) as error:  # the run itself is saved
            self._say(f"the report could not be written: {error}")

    def _seconds_left(self, step: int, first_seconds_per_step: float) -> float:
        """Return the remaining time, estimated from the time since the first report.

        That includes validation, but not the compilation before the first report.
        """
        now = time.monotonic()
        if self._first_report is None:
            self._first_report = (now, step)
        first_time, first_step = self._first_report
        seconds_per_step = first_seconds_per_step
        if step > first_step:
            seconds_per_step = (now - first_time) / (step - first_step)
        return round(seconds_per_step * (self._total_steps - step), 1)

    def _say(self, message: str) -> None:
        if self._display is not None:
            with suppress(OSError):
                self._display.say(message)

    def _record(self, kind: str, step: int, **values: Any) -> None:
        record = new_record(kind, step, values)

        # A full disk or a closed terminal must not end the training.
        for sink in self._sinks:
            try:
                sink.write(record)
            except OSError as error:
                if sink not in self._failed:
                    self._failed.append(sink)
                    self._say(f"{error}; training continues, but some records are missing")

        # A callback that raises is not called again, not even with the record of its error.
        if self._run_callbacks is not None and not self._silent:
            run_callbacks = self._run_callbacks
            self._run_callbacks = None
            self.stop_requested |= run_callbacks(record)
            self._run_callbacks = run_callbacks


def _encodable(sample: Sample) -> list[str]:
    """Return the texts with a question mark for what UTF-8 cannot encode."""
    return [text.encode("utf-8", "replace").decode() for text in sample]


def _open_tensorboard(run: Path, start_step: int) -> Sink | None:
    """Return a sink for TensorBoard, or None if it is not installed or the disk is full."""
    try:
        return TensorBoardSink(run, start_step)
    except (ImportError, OSError):
        return None
