"""The output of an export: written under another name, and renamed when it is complete."""

from __future__ import annotations

import errno
import json
import os
import re
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
_NUMBER = re.compile(r"\(os error ([0-9]{1,3})\)")  # as Rust's libraries write it


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
        # Some libraries have errors of their own, whose text ends with the number of the system's.
        number = _NUMBER.search(str(error))
        if number:
            reason = describe_failure(OSError(int(number[1]), os.strerror(int(number[1]))))
        elif shutil.disk_usage(out.parent).free < SPARE:
            reason = os.strerror(errno.ENOSPC)
        else:
            raise
        raise ExportError(f"{out} cannot be written ({reason}); choose another place") from error


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
