"""The record of unfinished work: what its finished parts depend on, so that they are not mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.data.text_folder import whole_file
from transduce.errors import DataError


def open_record(path: Path, expected: Mapping[str, Any], *, remedy: str) -> dict[str, Any]:
    """Return the record of earlier work, or write this one if there is none.

    Args:
        path: The file of the record, in the folder of the work.
        expected: What the finished parts depend on, by name. A record may have more.
        remedy: What to do if earlier work depends on something else.
    """
    if not path.exists():
        write_json(path, expected)
        return dict(expected)
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        # Reading gives a list for a tuple.
        values = json.loads(json.dumps(expected))
        changed = [name for name in values if record[name] != values[name]]
    except (ValueError, TypeError, KeyError):
        raise DataError(f"{path} is damaged; remove {path.parent} and start again") from None
    if changed:
        raise DataError(f"{path.parent} was made with another {changed[0]}; {remedy}")
    return record


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file completely or not at all."""
    with whole_file(path) as file:
        file.write(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
