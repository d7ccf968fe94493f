"""Installed bundles: those of the package, which have names, those of runs, and the default one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transduce.errors import BundleError
from transduce.storage.sealed_folder import MANIFEST, current_folder

PACKAGED = Path(__file__).parent.parent / "bundles"  # models that come with the package
DEFAULT = "en-de"  # the packaged model that is used by default
RUNS = Path("runs")


@dataclass(frozen=True)
class Installed:
    """A bundle that was found; `name` is what `find_bundle` and --model call it."""

    name: str
    path: Path
    is_packaged: bool


def installed_bundles(runs: Path = RUNS) -> list[Installed]:
    """Return the bundles of the package and of the runs. The default one comes first."""
    packaged = sorted(path for path in PACKAGED.glob("*") if _is_bundle(path))
    packaged.sort(key=lambda path: path.name != DEFAULT)

    # Of each run its best model, the newest first. That of a student is in the folder of `distil`.
    of_runs: dict[Path, Path] = {}
    for folder in runs.glob("*"):
        for run in (folder, folder / "run"):
            bundle = _bundle_of(run)
            if bundle is not None:
                of_runs[run] = bundle
    newest_first = sorted(of_runs, key=lambda run: _written_at(of_runs[run]), reverse=True)
    return [
        *(Installed(path.name, path, is_packaged=True) for path in packaged),
        *(Installed(str(run), of_runs[run], is_packaged=False) for run in newest_first),
    ]


def find_bundle(place: str | Path | None = None) -> Path:
    """Return the folder of a bundle.

    `place` is the folder of a bundle; or that of a run, which has its bundle in `best` or else in
    `last`; or, if there is no such folder, the name of a bundle that comes with the package.
    Without a place, it is the default bundle of the package, or else the newest one in ./runs.
    """
    if place is None:
        return _default()

    bundle = _bundle_of(Path(place))
    if bundle is not None:
        return bundle
    if (Path(place) / "checkpoints").is_dir():
        raise BundleError(
            f"the run {place} has no saved model yet; the first one is written at the first "
            "validation: continue the training"
        )

    # The name of a bundle of the package, unless something here has the same name.
    packaged = PACKAGED / place
    is_name = packaged.parent == PACKAGED and _is_bundle(packaged)
    if is_name and not current_folder(Path(place)).exists():
        return packaged
    if is_name and not _is_bundle(Path(place)):
        raise BundleError(
            f"the folder {place} has no model, and hides the model of the package with this name; "
            "rename the folder, or leave the model out"
        )
    return Path(place)


def default_bundles() -> list[Path]:
    """Return what a server takes without a place: all of the package, or else the newest run's."""
    packaged = [bundle.path for bundle in installed_bundles() if bundle.is_packaged]
    return packaged or [_default()]


def names_bundle(word: str) -> bool:
    """Return whether a word is the place of a bundle for `find_bundle`, and not just any text."""
    try:
        return _is_bundle(find_bundle(word))
    except BundleError:
        return True  # a run that has no bundle yet, for example
    except OSError:
        return False  # a text that is too long for a path


def _default() -> Path:
    bundles = installed_bundles()
    if bundles:
        return bundles[0].path
    raise BundleError(
        f"no model found in the package nor in ./{RUNS}; name the folder of a bundle or a run "
        "(transduce translate --model FOLDER, transduce serve FOLDER), or train one: transduce new"
    )


def _bundle_of(run: Path) -> Path | None:
    """Return the bundle of a run, or None."""
    for folder in (run / "best", run / "last"):
        if _is_bundle(folder):
            return folder
    return None


def _is_bundle(folder: Path) -> bool:
    try:
        return (current_folder(folder) / MANIFEST).is_file()
    except OSError:
        return False  # a folder of another user, for example


def _written_at(bundle: Path) -> float:
    return (current_folder(bundle) / MANIFEST).stat().st_mtime
