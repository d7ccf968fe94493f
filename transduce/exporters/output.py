"""The output of an export: written under another name, and renamed when it is complete."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.errors import ExportError, TransduceError
from transduce.storage.bundle import Bundle
from transduce.storage.disk import describe_failure

REPORT = "export.json"
SPARE = 1 << 20  # bytes; with less, the disk is full


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
    except TransduceError:
        raise
    except OSError as error:
        raise ExportError(
            f"{out} cannot be written ({describe_failure(error)}); choose another place"
        ) from error
    except Exception as error:
        # Some libraries have errors of their own for a full disk.
        if shutil.disk_usage(out.parent).free >= SPARE and "No space left" not in str(error):
            raise
        raise ExportError(
            f"{out} cannot be written (No space left on device); choose another place"
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
