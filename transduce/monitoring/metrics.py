"""The records of a run: metrics.jsonl, one JSON object per line, and the same in TensorBoard.

Every record has `kind`, `step` and `time` (seconds since 1970). The kinds are:

start, resume   an attempt begins after this step; it replaces earlier records of later steps
step            means and sums since the previous step record; `loss` is the cross-entropy, and
                `objective` what training minimizes, with label smoothing
validation      scores and sample translations
average         the same of the average of the last `checkpoints`, after the last step
test            the same of the best model on the test set, with the `signature` of BLEU
event           `event` is the kind of the event, `message` describes it
finish          the run is complete
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transduce.errors import CheckpointError
from transduce.monitoring.records import Record, is_number, parse_record

FILE_NAME = "metrics.jsonl"
ATTEMPTS = ("start", "resume")
NOT_CURVES = ("step", "time", "steps")  # numbers that TensorBoard does not show as curves
SPARE_BYTES = 1 << 20  # of free disk space, below which nothing is written to TensorBoard
Point = tuple[int, float]


class MetricsFile:
    """The metrics file, open for appending. Records are not buffered in the process."""

    def __init__(self, run: Path) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._file = (run / FILE_NAME).open("a+b", buffering=0)
        # Remove an incomplete last line, which a crash has left.
        self._file.seek(0)
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, completely or not at all."""
        # If the disk is full, remove the part of the line that was written.
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        end = self._file.seek(0, 2)
        try:
            if self._file.write(line) < len(line):
                raise OSError(f"{self._file.name}: no space left for a line")
        except OSError:
            self._file.truncate(end)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardSink:
    """Writes to `tensorboard/` in the run; hides what an earlier attempt wrote after a step."""

    def __init__(self, run: Path, start_step: int) -> None:
        """Open the folder; this raises an ImportError if tensorboard is not installed."""
        from torch.utils.tensorboard import SummaryWriter

        self._folder = run / "tensorboard"
        # On a full disk the writer's thread would end with a traceback.
        if shutil.disk_usage(run).free < SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        self._writer = SummaryWriter(self._folder, purge_step=start_step + 1 if start_step else 0)

    def write(self, record: Record) -> None:
        """Write numbers as curves; samples, events and the recipe as texts."""
        if shutil.disk_usage(self._folder).free < SPARE_BYTES:
            return

        kind = record["kind"]
        step = record["step"]
        if kind in ("step", "validation"):
            for name, value in record.items():
                if isinstance(value, int | float) and name not in NOT_CURVES:
                    self._writer.add_scalar(f"{kind}/{name}", value, step, walltime=record["time"])
        for number, sample in enumerate(record.get("samples", ()), start=1):
            text = "\n\n".join(map(_verbatim, sample))
            self._writer.add_text(f"samples/{number}", text, step)
        if kind == "event":
            self._writer.add_text(f"events/{record['event']}", _verbatim(record["message"]), step)
        if "recipe" in record:
            self._writer.add_text("recipe", _verbatim(record["recipe"]), step)
        self._writer.flush()

    def close(self) -> None:
        """Write everything to disk and close."""
        self._writer.close()


@dataclass(frozen=True)
class History:
    """The valid records of a run in the order of steps, without those that were replaced."""

    records: list[Record]
    last: Record  # the record that was written last
    seconds: float  # the training time of all attempts, including replaced steps
    damaged: int = 0  # lines of the file that are no records, and were left out

    def damage(self, run: Path) -> list[str]:
        """Return a line for the user about what was left out of the file, if anything was."""
        if not self.damaged:
            return []
        lines = "1 line" if self.damaged == 1 else f"{self.damaged:,} lines"
        return [f"{run / FILE_NAME}: {lines} ignored: damaged, or changed after the run"]

    def of(self, kind: str) -> list[Record]:
        """Return the records of a kind."""
        return [record for record in self.records if record["kind"] == kind]

    def curve(self, kind: str, name: str) -> list[Point]:
        """Return (step, value) for every record of a kind that has this value."""
        return [
            (record["step"], record[name])
            for record in self.of(kind)
            if is_number(record.get(name))
        ]

    def losses(self) -> dict[str, list[Point]]:
        """Return the negative log-likelihoods per target token, in training and validation.

        Both are without label smoothing, so that they can be compared.
        """
        return {
            "training": _logarithms(self.curve("step", "perplexity")),
            "validation": _logarithms(self.curve("validation", "perplexity")),
        }

    @property
    def best(self) -> Record:
        """The validation, or that of the average, with the best BLEU and then the lowest loss.

        Empty before the first validation.
        """
        validations = [*self.of("validation"), *self.of("average")]
        scored = [record for record in validations if record["bleu"] is not None]
        if not scored:
            scored = [record for record in validations if record["loss"] is not None]
        return min(scored, key=_rank, default={})

    @property
    def attempt(self) -> Record:
        """The first record of the newest attempt: recipe, hardware, total steps."""
        attempts = [record for record in self.records if record["kind"] in ATTEMPTS]
        return max(attempts, key=lambda record: float(record["time"]), default={})

    @property
    def step(self) -> int:
        """The last step that was recorded."""
        return max(int(record["step"]) for record in self.records)

    @property
    def status(self) -> Literal["running", "finished", "stopped"]:
        """The status according to the file, in which a killed run still looks running."""
        if self.of("finish"):
            return "finished"
        return "stopped" if self.last.get("event") == "stop" else "running"

    @property
    def no_translations(self) -> str:
        """The reason to show where there are no translations."""
        if self.of("validation"):
            return "nothing translated: validation computes the loss only"
        return "no validation yet"

    @property
    def flops(self) -> float:
        """The FLOPs of all steps; steps whose record was replaced count as the average step."""
        records = self.of("step")
        recorded_steps = sum(record["steps"] for record in records)
        if not recorded_steps:
            return 0.0
        return sum(record["flops"] for record in records) * self.step / recorded_steps


def read_metrics(run: Path) -> History:
    """Read the history of a run, finished or not."""
    path = run / FILE_NAME
    if not path.is_file():
        problem = f"has no {FILE_NAME}" if run.is_dir() else "is not a folder"
        raise CheckpointError(
            f"{run} {problem}; expected the folder of a run, which transduce train writes"
        )

    # A record replaces an earlier one with the same key.
    valid: dict[tuple[Any, ...], Record] = {}
    last: Record | None = None
    seconds = 0.0
    attempt_start = math.inf
    damaged = 0
    for record in _read_records(path):
        if record is None:
            damaged += 1
            continue
        # A new attempt replaces the records of later steps.
        if record["kind"] in ATTEMPTS:
            previous_end = (last or record)["time"]
            seconds += max(previous_end - attempt_start, 0.0)
            attempt_start = record["time"]
            valid = {key: old for key, old in valid.items() if not _replaces(record, old)}
        valid[_identity(record)] = record
        last = record
    if last is None:
        if path.stat().st_size:
            raise CheckpointError(
                f"{path} has no record of a training run; restore the file, or train again in "
                "another folder"
            )
        raise CheckpointError(
            f"{path} has no record yet; expected one as soon as training has started"
        )

    # The newest attempt lasts until its last record.
    seconds += max(last["time"] - attempt_start, 0.0)
    records = sorted(valid.values(), key=lambda record: int(record["step"]))
    return History(records, last, seconds, damaged)


def _read_records(path: Path) -> Iterator[Record | None]:
    """Yield the records of the file, and None for lines that were damaged or edited.

    The last line may be incomplete, because a run is writing it or was killed: it is left out.
    """
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            record = parse_record(line)
            if record is not None or line.endswith("\n"):
                yield record


def _replaces(attempt: Record, old: Record) -> bool:
    return bool(
        attempt["kind"] == "start" or old["step"] > attempt["step"] or old["kind"] == "finish"
    )


def _identity(record: Record) -> tuple[Any, ...]:
    """Return the key of a record: one per kind and step, but several events are allowed."""
    return record["kind"], record["step"], record.get("event"), record.get("message")


def _rank(validation: Record) -> tuple[float, float]:
    """Return what is lower for a better validation; early in training, BLEU is often exactly 0."""
    bleu = validation["bleu"]
    loss = validation["loss"]
    return (0.0 if bleu is None else -bleu, math.inf if loss is None else loss)


def _logarithms(points: list[Point]) -> list[Point]:
    return [(step, math.log(value)) for step, value in points]


def _verbatim(text: str) -> str:
    """Return text as a Markdown code block, by indentation."""
    return "\n".join(f"    {line}" for line in text.split("\n"))
