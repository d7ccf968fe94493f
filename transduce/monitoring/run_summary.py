"""Summaries of runs as plain data: state, curves and sample translations, for the browser page."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transduce.errors import CheckpointError, InputError
from transduce.monitoring.metrics import History, read_metrics
from transduce.monitoring.records import Record
from transduce.storage.lock import is_run_locked

MOST_POINTS = 600  # of a curve; a page is not wider
SILENCE = 600.0  # seconds without a record, after which a run elsewhere counts as stopped
SAMPLE_PARTS = ("source", "reference", "translation")


def summaries(folder: Path) -> list[dict[str, Any]]:
    """Return name, state and progress of every run in a folder, the newest first."""
    found: list[tuple[float, dict[str, Any]]] = []
    for run in folder.iterdir() if folder.is_dir() else ():
        try:
            history = read_metrics(run)
        except CheckpointError:
            continue  # another folder, or a run that has not started yet
        found.append((history.last["time"], _progress(run, history)))
    found.sort(key=lambda item: item[0], reverse=True)
    return [progress for _, progress in found]


def find_run(folder: Path, name: str) -> Path:
    """Return the run of this name in a folder; a name never leads out of the folder."""
    known = [run["name"] for run in summaries(folder)]
    if name not in known:
        listed = ", ".join(known) or "none"
        raise InputError(f"there is no run {name!r} in {folder}; the runs are: {listed}")
    return folder / name


def summary(run: Path) -> dict[str, Any]:
    """Return progress, curves and the samples of the last validation of a run.

    Losses are the negative log-likelihood per target token, without label smoothing, so that
    training and validation can be compared.
    """
    history = read_metrics(run)
    validations = history.of("validation")
    samples = (validations[-1].get("samples") or []) if validations else []
    return {
        **_progress(run, history),
        "training": [_training_point(record) for record in _thinned(history.of("step"))],
        "validation": [_validation_point(record) for record in _thinned(validations)],
        "samples": [dict(zip(SAMPLE_PARTS, texts, strict=False)) for texts in samples],
    }


def _progress(run: Path, history: History) -> dict[str, Any]:
    return {
        "name": run.name,
        "state": _state(run, history),
        "step": history.step,
        "steps": history.attempt.get("total_steps", 0),
    }


def _state(run: Path, history: History) -> str:
    """Return training, finished or stopped. A run that was killed looks unfinished in its file."""
    if history.status != "running":
        return history.status
    locked = is_run_locked(run)
    if locked is None:
        # Perhaps it trains on another machine: then only silence is a hint.
        locked = time.time() - history.last["time"] < SILENCE
    return "training" if locked else "stopped"


def _thinned(records: Sequence[Record]) -> list[Record]:
    """Return at most `MOST_POINTS` records, spread evenly, with the last."""
    if len(records) <= MOST_POINTS:
        return list(records)
    stride = (len(records) - 1) / (MOST_POINTS - 1)
    return [records[round(index * stride)] for index in range(MOST_POINTS)]


def _training_point(record: Record) -> dict[str, Any]:
    return {
        "step": record["step"],
        "loss": _logarithm(record.get("perplexity")),
        "tokens_per_second": record.get("target_tokens_per_second"),
    }


def _validation_point(record: Record) -> dict[str, Any]:
    return {
        "step": record["step"],
        "loss": _logarithm(record.get("perplexity")),
        "bleu": record.get("bleu"),
        "chrf": record.get("chrf"),
    }


def _logarithm(perplexity: float | None) -> float | None:
    return None if perplexity is None else round(math.log(perplexity), 5)
