"""An export is whole and verified, or not there: made aside, and moved into place when all has gone well."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.errors import ExportError
from transduce.storage.bundle import Bundle

REPORT = "export.json"


@contextmanager
def made_whole(out: Path) -> Iterator[Path]:
    """Where to make a file or a folder that becomes `out` if the block ends without an error."""
    if out.exists():
        raise ExportError(f"{out} is already there; choose another place, or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            work = Path(folder) / out.name
            yield work
            os.rename(work, out)
    except OSError as error:
        raise ExportError(
            f"{out} cannot be written ({error.strerror or error}); choose another place"
        ) from error


def write_report(folder: Path, bundle: Bundle, figures: Mapping[str, Any]) -> dict[str, Any]:
    """What was compared and how far it differed, beside what it is about; who may read this may read that."""
    report = {"bundle": bundle.fingerprint, **figures}
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for file in folder.iterdir():
        if file.is_file():  # some libraries keep what they write to its owner
            file.chmod(stat.S_IMODE((folder / REPORT).stat().st_mode))
    return report
