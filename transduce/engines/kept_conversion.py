"""The CTranslate2 model of a bundle, which is converted on first use and then kept."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from transduce.engines.conversion import Quantization, convert
from transduce.errors import BundleError, ExportError
from transduce.storage.bundle import Bundle
from transduce.storage.disk import describe_failure
from transduce.storage.installed import PACKAGED
from transduce.storage.sealed_folder import Kind, seal_folder, verify_folder

CONVERTED = Kind(
    name="CTranslate2 model",
    version=1,
    error=BundleError,
    remedy="remove the folder; it is made again",
)

logger = logging.getLogger("transduce")


def kept_conversion(bundle: Bundle, quantization: Quantization) -> Path:
    """Return the folder of the converted model, which is made if necessary.

    It is beside the bundle. For a bundle that came with the package, and where that folder cannot
    be written, it is in the user's cache.
    """
    name = f"{bundle.fingerprint[:16]}-{quantization}"
    places = _places(bundle)
    for place in places:
        if _is_complete(place / name):
            return place / name
    failures = []
    for place in places:
        try:
            return _write_converted(bundle, quantization, place, name)
        except OSError as error:
            failures.append(f"to {place} ({describe_failure(error)})")
    if not places:
        raise ExportError(
            "the CTranslate2 model cannot be kept, because this user has no home folder; set HOME "
            "or XDG_CACHE_HOME"
        )
    raise ExportError(
        f"the CTranslate2 model cannot be written {' nor '.join(failures)}; make such a folder "
        "writable"
    )


def _places(bundle: Bundle) -> list[Path]:
    """Return the folders that may hold the converted models of a bundle, the best one first."""
    places = []
    if not bundle.path.is_relative_to(PACKAGED):  # pip would not remove what is written there
        places.append(bundle.path.with_name(f"{bundle.path.name}.ctranslate2"))
    with contextlib.suppress(RuntimeError):  # a user id without a name may have no home folder
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        places.append(caches / "transduce" / "ctranslate2")
    return places


def _write_converted(bundle: Bundle, quantization: Quantization, place: Path, name: str) -> Path:
    """Convert a bundle into a new folder of this name, or raise an OSError."""
    place.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=place))
    try:
        _convert_and_check(bundle, work, quantization)
        if place.parent == bundle.path.parent:
            # Remove the models of bundles that were in this folder before.
            for old in place.glob(f"*-{quantization}"):
                shutil.rmtree(old, ignore_errors=True)
        seal_folder(work, CONVERTED)
        if not _is_complete(place / name):
            shutil.rmtree(place / name, ignore_errors=True)
        work.rename(place / name)
        logger.warning("the model is now also in %s, converted to CTranslate2", place)
    except OSError:
        # Another process may have been faster.
        if not _is_complete(place / name):
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place / name


def _convert_and_check(bundle: Bundle, folder: Path, quantization: Quantization) -> None:
    """Convert a bundle, and compare its log-probabilities in float32 with the model in torch.

    An ExportError names the first difference. int8 rounds the weights of the same conversion.
    """
    from transduce.engines.ctranslate2 import CTranslate2Engine
    from transduce.engines.self_check import compare_log_probs
    from transduce.engines.torch import load_model

    convert(bundle, folder, quantization)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as other:
        exact = folder
        if quantization != "float32":
            exact = Path(other)
            convert(bundle, exact, "float32")
        with _one_thread():
            engine = CTranslate2Engine(
                bundle, "cpu", quantization="float32", folder=exact, threads=1
            )
            compare_log_probs(
                load_model(bundle),
                "CTranslate2",
                lambda source, target: engine.log_probs(source, target[:-1]),
            )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: two libraries that take turns on all cores wait for each other.

    CTranslate2 sets the number of threads of torch, too.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _is_complete(folder: Path) -> bool:
    """Return whether a converted model is complete and undamaged."""
    try:
        verify_folder(folder, CONVERTED)
    except BundleError:
        return False
    return True
