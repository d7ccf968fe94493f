"""Every error a user can cause. Each message says what was found, what was expected and what to do.

TransduceError              one line and exit status 2 on the command line, a 4xx from the server
├── ConfigError             a setting that cannot work, or a name that does not exist
├── DataError               a corpus, a file of text or a token store
├── CheckpointError         a training state on disk
├── BundleError             a trained model on disk
├── InputError              token ids or text handed to a model
├── RankError               another process of the same training
├── ExportError             a runtime that cannot carry the model
├── HookError               a function of the user's own that was handed in, and raised
└── MissingExtra            an optional dependency that is not installed
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class TransduceError(Exception):
    """A mistake that the user can put right."""

    # Of several processes of a training that were under way, so others may not meet it.
    met_by_rank: int | None = None


class ConfigError(TransduceError):
    """A setting that cannot work, or a name that does not exist."""


class DataError(TransduceError):
    """A corpus, a file of text or a token store that cannot be used."""


class CheckpointError(TransduceError):
    """A training state on disk that cannot be used."""


class BundleError(TransduceError):
    """A trained model on disk that cannot be used."""


class InputError(TransduceError):
    """Token ids or text that the model cannot take."""


class RankError(TransduceError):
    """Another process of the same training that is gone."""


class ExportError(TransduceError):
    """A runtime that cannot carry the model, or an export that differs from it."""


class HookError(TransduceError):
    """A function of the user's own (a model, a loss, a callback, ...) that raised an error."""


class MissingExtra(TransduceError):
    """An optional dependency that is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency where it is used, or say which extra holds it."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingExtra(
            f"{name} is not installed; install it with: pip install 'transduce[{extra}]'"
        ) from error


def lacks_memory(error: Exception) -> bool:
    """Whether Python, NumPy, or torch (which is not imported to ask) found no more memory on the machine or the GPU."""
    named = any(
        kind.__name__ in ("MemoryError", "OutOfMemoryError") for kind in type(error).__mro__
    )
    return named or "can't allocate memory" in str(error)  # torch on a CPU has no name for it
