"""Identify the inputs of a token store: a fingerprint of its settings and files.

A file is hashed only if its size or modification time differs from what the existing store
recorded, so a change that keeps both is not detected. A copy or a `touch` does not change the
fingerprint. A file that no longer exists counts as unchanged: a store can be moved without its
text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from transduce.config import CorpusConfig, DataConfig
from transduce.data.readers.corpus import corpus_files
from transduce.data.store import FORMAT, SECTIONS
from transduce.data.tokenizer import Tokenizer
from transduce.errors import ConfigError, DataError
from transduce.storage.sealed_folder import file_sha256

# Settings that do not change a store: the files are hashed, and training decides on the mixture.
_NOT_STORED = ("corpora", "validation", "test", "temperature")


@dataclass(frozen=True)
class Inputs:
    """The settings of a store and, by section and corpus, its files with size, time and hash."""

    settings: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]

    @property
    def fingerprint(self) -> str:
        """A hash that is equal for the same settings and text, in whatever folder the files are."""
        hashes: dict[str, dict[str, list[tuple[str, str]]]] = {}
        for section, corpora in self.sections.items():
            hashes[section] = {}
            for corpus, files in corpora.items():
                named = [(Path(file["path"]).name, file["sha256"]) for file in files]
                hashes[section][corpus] = named
        content = json.dumps([FORMAT, self.settings, hashes], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def text_fingerprint(self) -> str:
        """A hash of the text alone, whatever its files are called and whatever the settings are."""
        hashes: list[list[list[str]]] = []
        for corpora in self.sections.values():
            hashes.append([])
            for files in corpora.values():
                hashes[-1].append([file["sha256"] for file in files])
        return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()

    def bytes_of(self, section: str, corpus: str) -> int:
        """Return the size of a corpus on disk."""
        return sum(file["bytes"] for file in self.sections[section][corpus])


def read_inputs(
    data: DataConfig,
    base: Path,
    known: Mapping[str, Any] | None = None,
    tokenizers: Mapping[str, Tokenizer] | None = None,
) -> Inputs:
    """Return the inputs of a recipe.

    Args:
        data: The corpora and the settings.
        base: The folder that relative paths start from.
        known: The inputs of an earlier store; files that have not changed since are not read.
        tokenizers: Tokenizers that are given instead of learned, by side.
    """
    known_sections = (known or {}).get("sections", {})
    known_files: dict[str, Mapping[str, Any]] = {}
    for corpora in known_sections.values():
        for files in corpora.values():
            known_files |= {file["path"]: file for file in files}

    sections: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for section, corpora in zip(SECTIONS, (data.corpora, data.validation, data.test), strict=True):
        paths_of = [list(chain(*corpus_files(corpus, base))) for corpus in corpora]
        sections[section] = {}
        for name, paths in zip(_names(corpora, paths_of), paths_of, strict=True):
            before = known_sections.get(section, {}).get(name, ())[: len(paths)]
            sections[section][name] = [
                _describe_file(path, known_files, old) for path, old in zip_longest(paths, before)
            ]

    settings = {name: value for name, value in asdict(data).items() if name not in _NOT_STORED}
    if not data.case_variants:
        del settings["case_variants"]  # stores from before this setting are still found
    if tokenizers:
        fingerprints = {side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()}
        settings["tokenizers"] = fingerprints
    return Inputs(json.loads(json.dumps(settings)), sections)


def differences(old: Mapping[str, Any], new: Inputs) -> str:
    """Return what changed since a store was made, in a few words."""
    old_settings = old["settings"]
    names = {**new.settings, **old_settings}
    changed = [f"data.{n}" for n in names if old_settings.get(n) != new.settings.get(n)]
    for section, corpora in new.sections.items():
        before = old["sections"].get(section, {})
        changed += [f"{section} corpus {name}" for name in before if name not in corpora]
        for name, files in corpora.items():
            old_hashes = [file["sha256"] for file in before.get(name, [])]
            new_hashes = [file["sha256"] for file in files]
            if old_hashes != new_hashes:
                changed.append(f"{section} corpus {name}")
    return ", ".join(changed) or "the order of the corpora"


def _names(corpora: Sequence[CorpusConfig], files: Sequence[Sequence[Path]]) -> list[str]:
    """Return the name of each corpus: the one in the recipe, or that of its first file.

    Where two first files have the same name, that of the folder is added.
    """
    short = [corpus.name or paths[0].name for corpus, paths in zip(corpora, files, strict=True)]
    names = []
    for name, corpus, paths in zip(short, corpora, files, strict=True):
        unique = corpus.name or short.count(name) == 1
        names.append(name if unique else f"{paths[0].parent.name}/{name}")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two corpora are called {name!r}; give each its own name")
    return names


def _describe_file(
    path: Path, known_files: Mapping[str, Mapping[str, Any]], old: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return the path, size, time and hash of a file; `old` is used if the file is gone."""
    name = str(path.resolve())
    try:
        status = path.stat()
        known = known_files.get(name, {})
        if (known.get("bytes"), known.get("modified")) == (status.st_size, status.st_mtime_ns):
            return known
        return {
            "path": name,
            "bytes": status.st_size,
            "modified": status.st_mtime_ns,
            "sha256": file_sha256(path),
        }
    except FileNotFoundError:
        if old and Path(old["path"]).name == path.name:
            return old
        raise DataError(f"{path} does not exist; expected a text file") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
