"""Files that a command writes: checked before the work, written whole, and named."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transduce.errors import InputError

STANDARD_OUTPUT = Path("-")


def check_output(path: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Refuse a file that cannot be written, or that is an input, before the work."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} cannot be written; expected a file in a folder that exists")
    if path.resolve() in [other.resolve() for other in inputs]:
        raise InputError(f"{path} is read and would be overwritten; choose another file to write")


def write_output(path: Path, text: str) -> None:
    """Write a file completely or not at all, and say where it is."""
    from transduce.storage.disk import whole_file

    with whole_file(path) as file:
        file.write(text.encode())
    name_output(path)


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a file with JSON, or print it if the path is that of the standard output."""
    text = json.dumps(values, ensure_ascii=False)
    if path == STANDARD_OUTPUT:
        print(text)
    else:
        write_output(path, text + "\n")


def name_output(path: Path) -> None:
    """Say which file was written."""
    print(f"transduce: wrote {path}", file=sys.stderr)
