"""The version and the commit of the running code, for the records of runs and results."""

from __future__ import annotations

import functools
import os
import subprocess
from importlib import metadata
from pathlib import Path

COMMIT_VARIABLE = "TRANSDUCE_COMMIT"  # names the commit where there is no git repository
ROOT = Path(__file__).parent.parent.parent


def version() -> str:
    """Return the version of the installed package; code that is not installed has none."""
    try:
        return metadata.version("transduce")
    except metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    """Return the commit of the running code, or "" outside of a repository.

    Uncommitted changes of the package are marked with "+".
    """
    named = os.environ.get(COMMIT_VARIABLE)
    if named:
        return named
    if not (ROOT / ".git").exists():
        return ""
    found = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "transduce")
    return f"{found}+" if found and changes else found


def software() -> dict[str, str]:
    """Return the version and, where it is known, the commit."""
    description = {"transduce": version()}
    if commit():
        description["commit"] = commit()
    return description


@functools.cache
def _git(*words: str) -> str:
    """Return what a git command prints, or nothing if it fails."""
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
