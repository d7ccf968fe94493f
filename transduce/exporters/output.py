"""The output of an export: written under another name, and renamed when it is complete."""

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
def complete_output(out: Path) -> Iterator[Path]:
    """Yield a path for a file or folder that becomes `out` if the block ends without an error."""
    if out.exists():
        raise ExportError(f"{out} exists already; choose another place, or remove it")
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
    """Write the report of the verification beside the export, and return it.

    All files get the permissions of the report: some libraries make theirs readable only for the
    owner.
    """
    report = {"bundle": bundle.fingerprint, **figures}
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    mode = stat.S_IMODE((folder / REPORT).stat().st_mode)
    for file in folder.iterdir():
        if file.is_file():
            file.chmod(mode)
    return report
