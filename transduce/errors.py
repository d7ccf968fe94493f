"""All errors that a user can cause. A message says what was found, what was expected, what to do.

TransduceError              one line and exit status 2 on the command line, a 4xx from the server
├── ConfigError             a setting that cannot work, or a name that does not exist
├── DataError               a corpus, a text file or a token store
├── CheckpointError         a training checkpoint on disk
├── BundleError             a trained model on disk
├── InputError              token ids or text for a model
├── RankError               another process of the same training
├── ClusterError            a Ray cluster that cannot be used, or a worker of it that failed
├── ExportError             a runtime that does not support the model
├── HookError               a function of the user that was passed in, and raised an error
└── MissingExtra            an optional dependency that is not installed
"""

from __future__ import annotations

import json
import os
import shlex
from importlib import import_module
from types import ModuleType


class TransduceError(Exception):
    """A mistake that the user can correct."""

    # The rank that raised the error during distributed training. Other ranks may not have it.
    met_by_rank: int | None = None
    # Whether another rank has met the same error first, and prints it.
    is_printed_elsewhere = False


class ConfigError(TransduceError):
    """A setting that cannot work, or a name that does not exist."""


class DataError(TransduceError):
    """A corpus, a text file or a token store that cannot be used."""


class CheckpointError(TransduceError):
    """A training checkpoint on disk that cannot be used."""


class BundleError(TransduceError):
    """A trained model on disk that cannot be used."""


class InputError(TransduceError):
    """Token ids or text that the model does not accept."""


class RankError(TransduceError):
    """Another process of the same training that has failed or ended."""


class ClusterError(TransduceError):
    """A Ray cluster that cannot be used, or a worker of it that failed."""


class ExportError(TransduceError):
    """A runtime that does not support the model, or an export that gives other results."""


class HookError(TransduceError):
    """A function of the user (a model, a loss, a callback, ...) that raised an error."""


class MissingExtra(TransduceError):
    """An optional dependency that is not installed."""


def printable(text: str) -> str:
    """Return text from elsewhere for a message: one line that cannot control a terminal."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency; if it is missing, name the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        name = {"google": "protobuf"}.get(package, package)
        raise MissingExtra(
            f"{name} is not installed; install it with: {install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """Return the command that adds an extra, from where transduce itself was installed."""
    # Imported here, since every command imports this module.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        written = distribution("transduce").read_text("direct_url.json")
    except PackageNotFoundError:
        written = None
    origin = json.loads(written) if written else {}
    address = urlsplit(origin.get("url", ""))
    if address.scheme != "file":
        return f"pip install {shlex.quote(f'transduce[{extra}]')}"

    # A clone or a wheel file: the name alone would be looked up in a registry.
    path = url2pathname(address.path)
    place = "." if path == os.getcwd() else path
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}{shlex.quote(f'{place}[{extra}]')}"


# What libraries say that do not raise a MemoryError: torch on a CPU, C++, the loader, the kernel.
_NO_MEMORY = (
    "can't allocate memory",
    "std::bad_alloc",
    "failed to map segment",
    "Cannot allocate memory",
    "can't start new thread",
    "OpenBLAS",
)


def lacks_memory(error: Exception) -> bool:
    """Return whether Python, NumPy or torch ran out of memory, on the machine or on a GPU."""
    # Compare names, so that torch is not imported only to ask.
    names = {kind.__name__ for kind in type(error).__mro__}
    named = not names.isdisjoint(("MemoryError", "OutOfMemoryError"))
    return named or any(sign in str(error) for sign in _NO_MEMORY)
