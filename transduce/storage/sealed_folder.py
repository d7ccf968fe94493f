"""Folders with a manifest of checksums, which are complete or absent.

A folder is written under another name and synced, with its manifest last, and then renamed. The
content of a file is bytes, or named tensors, which are stored as safetensors. Nothing is pickled,
and a file that the manifest does not name is never opened.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from transduce.errors import TransduceError
from transduce.storage.disk import describe_failure, sync, sync_folder
from transduce.storage.tensors import file_chunks, file_size

if TYPE_CHECKING:  # importing torch takes seconds, and not every reader of a bundle needs it
    from torch import Tensor

Content: TypeAlias = "bytes | Mapping[str, Tensor]"

MANIFEST = "MANIFEST.json"
MOST_MANIFEST = 1 << 24  # bytes
SPARE = 1 << 16  # bytes for the manifest and the file system's own records
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of folder, such as a bundle, with the words for its error messages."""

    name: str
    version: int  # of the layout; a newer one is refused
    error: type[TransduceError]
    remedy: str  # what to do about a damaged folder


def write_folder(
    path: Path, kind: Kind, files: Mapping[str, Content], *, replace: bool = False
) -> Path:
    """Write a folder with all these files, or nothing.

    With `replace`, an existing folder stays complete until the new one is.
    """
    tidy(path.parent, path.name)  # this may bring an existing folder back
    may_replace = replace and (path / MANIFEST).is_file()
    if path.exists() and not may_replace:
        raise kind.error(
            f"{path} exists already and is never overwritten; choose another folder or remove it"
        )
    needed = SPARE + sum(map(_size, files.values()))
    draft = path.with_name(f".{path.name}.writing-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(path.parent).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        # Write the draft, its manifest last.
        draft.mkdir()
        entries = {name: _write(draft / name, content) for name, content in files.items()}
        _write(draft / MANIFEST, _manifest(kind, entries))
        sync_folder(draft)

        # Give it its name. `tidy` finishes this if the process is killed in between.
        if path.exists():
            os.rename(path, _set_aside(path))
        os.rename(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        raise kind.error(_explain(path, needed, error)) from None
    finally:
        tidy(path.parent, path.name)
    return path


def seal_folder(path: Path, kind: Kind) -> None:
    """Write the manifest of a folder whose files another library has written."""
    entries = {}
    for file in sorted(path.iterdir()):
        entries[file.name] = {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
    _write(path / MANIFEST, _manifest(kind, entries))


def delete_folder(path: Path, kind: Kind) -> None:
    """Delete a folder.

    It is renamed first, so that no incomplete folder remains if the process is killed; `tidy`
    removes the rest later.
    """
    renamed = path.with_name(f".{path.name}.deleting-{secrets.token_hex(4)}")
    try:
        os.rename(path, renamed)
        sync_folder(path.parent)
    except OSError as error:
        raise kind.error(
            f"{path} cannot be removed ({error.strerror}); remove it by hand"
        ) from None
    shutil.rmtree(renamed, ignore_errors=True)


def tidy(parent: Path, name: str = "") -> None:
    """Undo or finish what killed processes left half done to the folder `name`, or to any folder.

    Only one process may write a folder at a time.
    """
    pattern = f".{glob.escape(name) or '*'}"
    for suffix in ("writing-*", "deleting-*"):
        for leftover in parent.glob(f"{pattern}.{suffix}"):
            shutil.rmtree(leftover, ignore_errors=True)

    for aside in parent.glob(f"{pattern}.replaced"):
        path = aside.with_name(aside.name[1:].removesuffix(".replaced"))
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            # The process was killed between the two renames of a replacement.
            with contextlib.suppress(OSError):
                os.rename(aside, path)


def current_folder(path: Path) -> Path:
    """Return the folder, or the previous one while it is being replaced.

    "." and ".." become absolute: only a path with a name has neighbours.
    """
    if path.name in ("", ".."):
        path = Path(os.path.abspath(path))
    if not path.name:
        return path  # the root
    aside = _set_aside(path)
    return aside if not path.exists() and aside.exists() else path


def verify_folder(path: Path, kind: Kind, only: Collection[str] | None = None) -> dict[str, str]:
    """Check the size and the SHA-256 of every file, or of those in `only`.

    Returns the SHA-256 of each file by name.
    """
    manifest = _read_manifest(path, kind)
    if manifest["format"] > kind.version:
        raise kind.error(
            f"{path} has {kind.name} format {manifest['format']}, but this transduce reads formats "
            f"up to {kind.version}; upgrade transduce"
        )
    if manifest.get("kind") != kind.name:
        raise kind.error(
            f"{path} is a {manifest.get('kind')}; expected a {kind.name}: {kind.remedy}"
        )
    files = manifest.get("files")
    if not _are_entries(files):
        raise kind.error(
            f"{path / MANIFEST} does not name files with their bytes and SHA-256; {kind.remedy}"
        )
    for name in files if only is None else only:
        if name not in files or Path(name).name != name:
            raise kind.error(f"{path / MANIFEST} names no file {name}; {kind.remedy}")
        try:
            _verify_file(path / name, files[name], kind)
        except OSError as error:
            raise kind.error(
                f"{path / name} cannot be read ({error.strerror}); {kind.remedy}"
            ) from None
    return {name: entry["sha256"] for name, entry in files.items()}


def has_newer_format(path: Path, kind: Kind) -> bool:
    """Return whether the folder is valid but was written by a newer version of transduce."""
    try:
        return bool(_read_manifest(path, kind)["format"] > kind.version)
    except kind.error:
        return False


def _set_aside(path: Path) -> Path:
    """Return the name of a folder while it is being replaced."""
    return path.with_name(f".{path.name}.replaced")


def _write(file: Path, content: Content) -> dict[str, Any]:
    """Write and sync a file, and return its entry in the manifest."""
    digest = hashlib.sha256()
    size = 0
    with open(file, "xb") as stream:
        for chunk in _chunks(content):
            digest.update(chunk)
            stream.write(chunk)
            size += len(chunk)
        sync(stream)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _explain(path: Path, needed: int, error: OSError) -> str:
    """Return the message for a folder that could not be written."""
    if error.errno not in DISK_FULL:
        place = f": {error.filename}" if error.filename else ""
        return (
            f"{path} cannot be written ({describe_failure(error)}{place}); what was saved before "
            "is intact"
        )
    tidy(path.parent, path.name)  # the unfinished draft must not count as used
    existing = next(folder for folder in path.absolute().parents if folder.exists())
    return (
        f"{path} does not fit on the disk ({error.strerror}): it needs {needed:,} bytes and "
        f"{shutil.disk_usage(existing).free:,} are free; make room, what was saved before is intact"
    )


def _manifest(kind: Kind, files: dict[str, Any]) -> bytes:
    content = {"kind": kind.name, "format": kind.version, "files": files}
    return json.dumps(sealed(content), indent=1).encode()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a manifest together with its own checksum."""
    return {**content, "sha256": _checksum(content)}


def unsealed(manifest: bytes) -> dict[str, Any]:
    """Return the content of a manifest that matches its own checksum, or raise a ValueError.

    Without the checksum, a flipped bit could look like a newer format.
    """
    try:
        content: dict[str, Any] = json.loads(manifest)
        if content.pop("sha256") == _checksum(content):
            return content
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        pass  # not JSON, or not a manifest
    raise ValueError("it does not match its own checksum")


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_manifest(path: Path, kind: Kind) -> dict[str, Any]:
    """Read the manifest and check it against its own checksum."""
    try:
        if not path.exists():
            raise kind.error(f"{path} does not exist; expected a {kind.name}")
        if not (path / MANIFEST).is_file():
            raise kind.error(f"{path} is not a {kind.name}: it holds no {MANIFEST}; {kind.remedy}")
        if (path / MANIFEST).stat().st_size > MOST_MANIFEST:
            raise kind.error(
                f"{path / MANIFEST} has more than {MOST_MANIFEST:,} bytes; {kind.remedy}"
            )
        manifest = unsealed((path / MANIFEST).read_bytes())
    except OSError as error:
        raise kind.error(
            f"{path / MANIFEST} cannot be read ({error.strerror}); {kind.remedy}"
        ) from None
    except ValueError:
        manifest = {}
    version = manifest.get("format")
    if type(version) is not int or version < 1:
        raise kind.error(
            f"{path / MANIFEST} is damaged: it does not match its own checksum; {kind.remedy}"
        )
    return manifest


def _are_entries(files: Any) -> TypeGuard[dict[str, dict[str, Any]]]:
    return isinstance(files, dict) and all(map(_is_entry, files.values()))


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    return type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)


def _verify_file(file: Path, expected: dict[str, Any], kind: Kind) -> None:
    if not file.is_file():
        raise kind.error(f"{file} is missing; {kind.remedy}")
    size = file.stat().st_size
    if size != expected["bytes"]:
        raise kind.error(
            f"{file} has {size:,} bytes; expected {expected['bytes']:,}: {kind.remedy}"
        )
    if file_sha256(file) != expected["sha256"]:
        raise kind.error(
            f"{file} is damaged: its SHA-256 is not the one in {MANIFEST}; {kind.remedy}"
        )


def _size(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else file_size(content)


def _chunks(content: Content) -> Iterable[bytes | memoryview]:
    return [content] if isinstance(content, bytes) else file_chunks(content)
