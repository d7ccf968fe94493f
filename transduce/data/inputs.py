"""What a store is made from: the settings that shape it and the content of every file, as one fingerprint.

A file is read and hashed only when its size or time of change differs from what the last store noted: a copy or a
`touch` changes nothing, other text does. (Other text in a file whose size and time are both as before is not seen.) A
file that is gone is as the store has it: who moves a store need not bring the text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from transduce.config import CorpusConfig, DataConfig
from transduce.data.readers.corpus import corpus_files
from transduce.data.store import FORMAT, SECTIONS, sha256
from transduce.data.tokenizer import Tokenizer
from transduce.errors import ConfigError, DataError

_NOT_STORED = ("corpora", "validation", "test", "temperature")  # mixing is decided when training


@dataclass(frozen=True)
class Inputs:
    """Settings, and by section and corpus the files with their size, time and hash."""

    settings: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]

    @property
    def fingerprint(self) -> str:
        """Equal for the same settings and text, wherever the files are."""
        files = {
            section: {
                corpus: [(Path(file["path"]).name, file["sha256"]) for file in files]
                for corpus, files in corpora.items()
            }
            for section, corpora in self.sections.items()
        }
        return hashlib.sha256(
            json.dumps([FORMAT, self.settings, files], sort_keys=True).encode()
        ).hexdigest()

    def bytes_of(self, section: str, corpus: str) -> int:
        """The size of a corpus on disk."""
        return sum(file["bytes"] for file in self.sections[section][corpus])


def read_inputs(
    data: DataConfig,
    base: Path,
    known: Mapping[str, Any] | None = None,
    tokenizers: Mapping[str, Tokenizer] | None = None,
) -> Inputs:
    """The inputs of a recipe, and of tokenizers that come from elsewhere; `known` is what an earlier store says of its
    own, to spare reading."""
    stamps: dict[str, Mapping[str, Any]] = {}
    for corpora in (known or {}).get("sections", {}).values():
        stamps |= {file["path"]: file for files in corpora.values() for file in files}
    sections = {}
    for section, corpora in zip(SECTIONS, (data.corpora, data.validation, data.test), strict=True):
        files = [
            [path for group in corpus_files(corpus, base) for path in group] for corpus in corpora
        ]
        before = (known or {}).get("sections", {}).get(section, {})
        sections[section] = {
            name: [
                _stamp(path, stamps, old)
                for path, old in zip_longest(paths, before.get(name, ())[: len(paths)])
            ]
            for name, paths in zip(_names(corpora, files), files, strict=True)
        }
    settings = {name: value for name, value in asdict(data).items() if name not in _NOT_STORED}
    if tokenizers:
        settings["tokenizers"] = {
            side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()
        }
    return Inputs(json.loads(json.dumps(settings)), sections)


def differences(old: Mapping[str, Any], new: Inputs) -> str:
    """What changed since a store was made, in a few words."""
    changed = [
        f"data.{name}" for name, value in new.settings.items() if old["settings"].get(name) != value
    ]
    for section, corpora in new.sections.items():
        before = old["sections"].get(section, {})
        changed += [f"{section} corpus {name}" for name in before if name not in corpora]
        for name, files in corpora.items():
            hashes = [file["sha256"] for file in before.get(name, [])]
            if hashes != [file["sha256"] for file in files]:
                changed.append(f"{section} corpus {name}")
    return ", ".join(changed) or "the order of the corpora"


def _names(corpora: Sequence[CorpusConfig], files: Sequence[Sequence[Path]]) -> list[str]:
    """What reports call each corpus: its own name, or its first file, with the folder where two are alike."""
    plain = [corpus.name or paths[0].name for corpus, paths in zip(corpora, files, strict=True)]
    names = [
        name if corpus.name or plain.count(name) == 1 else f"{paths[0].parent.name}/{name}"
        for name, corpus, paths in zip(plain, corpora, files, strict=True)
    ]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"two corpora are called {twice!r}; give each a name of its own")
    return names


def _stamp(
    path: Path, stamps: Mapping[str, Mapping[str, Any]], old: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    name = str(path.resolve())
    try:
        status = path.stat()
        known = stamps.get(name, {})
        if (known.get("bytes"), known.get("modified")) == (status.st_size, status.st_mtime_ns):
            return known
        return {
            "path": name,
            "bytes": status.st_size,
            "modified": status.st_mtime_ns,
            "sha256": sha256(path),
        }
    except FileNotFoundError:
        if old and Path(old["path"]).name == path.name:
            return old
        raise DataError(f"{path} does not exist; expected a file of text") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
