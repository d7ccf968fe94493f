"""Files that a command writes: checked before the work, written whole, and named."""

from __future__ import annotations

import sys
from pathlib import Path

from transduce.errors import InputError


def check_output(path: Path | None) -> None:
    """Refuse a file that cannot be written, before the work."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise InputError(f"{path} cannot be written; expected a file in a folder that exists")


def write_output(path: Path, text: str) -> None:
    """Write a file completely or not at all, and say where it is."""
    from transduce.storage.disk import whole_file

    with whole_file(path) as file:
        file.write(text.encode())
    name_output(path)


def name_output(path: Path) -> None:
    """Say which file was written."""
    print(f"transduce: wrote {path}", file=sys.stderr)
