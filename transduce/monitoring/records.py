"""Records of a run, parsed and checked once: what each kind of record contains.

A line of metrics.jsonl that was edited or damaged is no record. So whatever reads records can rely
on their types: a number is finite, or None where it could not be computed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

Record = dict[str, Any]
Check = Callable[[Any], bool]

MOST_STEPS = 10**15  # a step beyond this was not written by training


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a finite number."""
    return type(value) in (int, float) and abs(value) < 1e300  # false for NaN


def _is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def _is_positive_or_none(value: Any) -> bool:
    return value is None or (is_number(value) and value > 0)


def _is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_STEPS


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_description(value: Any) -> bool:
    """Return whether a value describes hardware: names with texts or numbers."""
    return isinstance(value, dict) and "cpu" in value


def _are_samples(value: Any) -> bool:
    return isinstance(value, list) and all(_is_sample(sample) for sample in value)


def _is_sample(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_text, value))


_SCORES: dict[str, Check] = {
    "loss": _is_number_or_none,
    "perplexity": _is_positive_or_none,
}
_VALIDATION: dict[str, Check] = {
    **_SCORES,
    "bleu": _is_number_or_none,
    "chrf": _is_number_or_none,
    "samples": _are_samples,
}
_ATTEMPT: dict[str, Check] = {
    "run": _is_text,
    "total_steps": _is_step,
    "recipe": _is_text,
    "hardware": _is_description,
}
# What the records of each kind contain, besides `kind`, `step` and `time`.
KINDS: dict[str, dict[str, Check]] = {
    "start": _ATTEMPT,
    "resume": _ATTEMPT,
    "step": {
        **_SCORES,
        "objective": _is_number_or_none,
        "steps": _is_step,
        "learning_rate": _is_number_or_none,
        "gradient_norm": _is_number_or_none,
        "target_tokens": is_number,
        "step_seconds": is_number,
        "target_tokens_per_second": is_number,
        "data_share": is_number,
        "flops": is_number,
        "peak_share": _is_number_or_none,
        "seconds_left": is_number,
    },
    "validation": _VALIDATION,
    "average": {**_VALIDATION, "checkpoints": _is_step},
    "test": {**_VALIDATION, "signature": _is_text},
    "event": {"event": _is_text, "message": _is_text},
    "finish": {"message": _is_text},
}


def new_record(kind: str, step: int, values: Mapping[str, Any]) -> Record:
    """Return a record with the current time. NaN and infinity, which JSON lacks, become None."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
    return {"kind": kind, "step": step, "time": round(time.time(), 3), **finite}


def parse_record(line: str) -> Record | None:
    """Return the record of a line, or None if the line is incomplete, damaged or edited."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not _is_text(record.get("kind")):
        return None
    if not _is_step(record.get("step")) or not is_number(record.get("time")):
        return None
    expected = KINDS.get(record["kind"])
    if expected is None:
        return None
    _upgrade(record)
    valid = all(name in record and check(record[name]) for name, check in expected.items())
    return record if valid else None


def _upgrade(record: Record) -> None:
    """Give a record of an older version today's names.

    Until version 0.1 the `loss` of a step was the objective that training minimizes, with label
    smoothing. Now it is the cross-entropy, as in a validation.
    """
    if record["kind"] == "step" and "objective" not in record:
        record["objective"] = record.get("loss")
        perplexity = record.get("perplexity")
        record["loss"] = None
        if is_number(perplexity) and perplexity > 0:
            record["loss"] = math.log(perplexity)
