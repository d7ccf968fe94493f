"""metrics.jsonl: what a run did, one JSON object a line, only ever appended to; and how to read it back.

Every line has `kind`, `step` and `time` (seconds since 1970).

start, resume   an attempt begins after this step: lines of later steps written before it are superseded
step            means and sums since the step line before
validation      scores and samples
event           `event` names what happened, `message` says it
finish          the run is complete
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transduce.errors import CheckpointError

FILE_NAME = "metrics.jsonl"
ATTEMPTS = ("start", "resume")
Record = dict[str, Any]
Point = tuple[int, float]


class MetricsFile:
    """The end of the file, open for more lines. Each is on its way to the disk when `write` returns."""

    def __init__(self, run: Path) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._file = (run / FILE_NAME).open("a+b", buffering=0)
        self._file.seek(0)
        # A line that a crash cut short was never a record.
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line, whole or not at all."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        before = self._file.seek(0, 2)
        try:
            if self._file.write(line) < len(line):
                raise OSError(f"{self._file.name}: no space left for a line")
        except OSError:
            self._file.truncate(before)
            raise

    def close(self) -> None:
        """No more lines."""
        self._file.close()


@dataclass(frozen=True)
class History:
    """What holds of a run: nothing superseded, in order of steps."""

    records: list[Record]
    last: Record  # the line written last
    seconds: float  # at work, in all attempts together, what was superseded included

    def of(self, kind: str) -> list[Record]:
        """The records of a kind."""
        return [record for record in self.records if record["kind"] == kind]

    def curve(self, kind: str, name: str) -> list[Point]:
        """(step, value) of every record of a kind that has the value."""
        return [
            (record["step"], record[name])
            for record in self.of(kind)
            if _is_number(record.get(name))
        ]

    def losses(self) -> dict[str, list[Point]]:
        """Negative log-likelihoods a target token: that of training without the smoothing, as that of validation."""
        curves = {
            "training": self.curve("step", "perplexity"),
            "validation": self.curve("validation", "perplexity"),
        }
        return {
            name: [(step, math.log(value)) for step, value in points]
            for name, points in curves.items()
        }

    @property
    def attempt(self) -> Record:
        """How the newest attempt began: recipe, hardware, steps to do."""
        begun = [record for record in self.records if record["kind"] in ATTEMPTS]
        return max(begun, key=lambda record: float(record["time"]), default={})

    @property
    def step(self) -> int:
        """The last step that is known to be done."""
        return max(int(record["step"]) for record in self.records)

    @property
    def status(self) -> Literal["running", "finished", "stopped"]:
        """As far as the file knows: a killed run looks like one that runs, but for its lock and last line's time."""
        if self.of("finish"):
            return "finished"
        return "stopped" if self.last.get("event") == "stop" else "running"

    @property
    def no_translations(self) -> str:
        """Where there are none: why."""
        return (
            "nothing translated: validation by the loss alone"
            if self.of("validation")
            else "no validation yet"
        )

    @property
    def flops(self) -> float:
        """Spent on all steps; those whose line was superseded cost what the others did on average."""
        steps = self.of("step")
        counted = sum(record["steps"] for record in steps)
        return sum(record["flops"] for record in steps) * self.step / counted if counted else 0.0


def read_metrics(run: Path) -> History:
    """The history of a run, finished or not."""
    path = run / FILE_NAME
    if not path.is_file():
        found = "is not a folder" if not run.is_dir() else f"has no {FILE_NAME}"
        raise CheckpointError(
            f"{run} {found}; expected a run, the folder that transduce train writes"
        )
    kept: dict[tuple[Any, ...], Record] = {}
    seconds, begun, last = 0.0, math.inf, None
    for record in _lines(path):
        if record["kind"] in ATTEMPTS:
            seconds += max((last or record)["time"] - begun, 0.0)
            begun = record["time"]
            kept = {key: old for key, old in kept.items() if not _supersedes(record, old)}
        kept[_identity(record)] = last = record
    if last is None:
        raise CheckpointError(
            f"{path} holds no record yet; expected one as soon as training has begun"
        )
    seconds += max(last["time"] - begun, 0.0)
    return History(sorted(kept.values(), key=lambda record: int(record["step"])), last, seconds)


def new_record(kind: str, step: int, values: Mapping[str, Any]) -> Record:
    """A line to be, at this moment. JSON has no NaN and no infinity: they become null."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
    return {"kind": kind, "step": step, "time": round(time.time(), 3), **finite}


def _lines(path: Path) -> Iterator[Record]:
    """The records of the file; a line being written, or damaged, is passed over."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "kind" in record and {"step", "time"} <= record.keys():
                yield record


def _supersedes(attempt: Record, old: Record) -> bool:
    return bool(
        attempt["kind"] == "start" or old["step"] > attempt["step"] or old["kind"] == "finish"
    )


def _identity(record: Record) -> tuple[Any, ...]:
    """One record a kind and step, except events: several things may happen at a step."""
    return record["kind"], record["step"], record.get("event"), record.get("message")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
