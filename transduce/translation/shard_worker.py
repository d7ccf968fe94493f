"""A worker of a cluster: it holds a translator and translates one shard after another."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transduce.config import SearchConfig
from transduce.engines.choose import EngineName, Precision
from transduce.errors import ClusterError, TransduceError
from transduce.storage.bundle import load_bundle
from transduce.translation.shards import Shard, translate_shard
from transduce.translation.streams import Format
from transduce.translation.translator import Translator

ATTEMPTS = 5  # to translate a shard: more workers than this do not die by chance


@dataclass(frozen=True)
class Model:
    """The models, and how they translate."""

    bundles: tuple[Path, ...]
    fingerprints: tuple[str, ...]
    search: SearchConfig
    engine: EngineName
    device: str
    precision: Precision

    def load(self) -> Translator:
        """Return the translator, and refuse bundles that are others on this machine."""
        bundles = [load_bundle(path) for path in self.bundles]
        for bundle, fingerprint in zip(bundles, self.fingerprints, strict=True):
            if bundle.fingerprint != fingerprint:
                raise ClusterError(
                    f"{bundle.path} is another model than on the machine that started the work; "
                    "copy it again, or share the folder"
                )
        return Translator(
            bundles,
            engine=self.engine,
            device=self.device,
            precision=self.precision,
            search=self.search,
        )


@dataclass(frozen=True)
class Job:
    """What a worker needs to know. All paths are absolute."""

    model: Model
    form: Format
    source: Path  # as messages name it
    text: Path  # the source without compression
    folder: Path  # of the finished shards


class ShardWorker:
    """A process of Ray that holds a translator and translates one shard after another."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Translate a shard. A mistake of the user is returned, since Ray wraps what is raised."""
        chunks = [int(size) for size in row["chunks"]]  # Ray gives an array
        shard = Shard(**(row | {"chunks": chunks}))
        notices: list[str] = []
        mistake = ""
        try:
            notices = self._translate(shard)
        except TransduceError as error:
            mistake = f"{error} (on the machine {platform.node()})"
        return {"lines": shard.lines, "notices": "\n".join(notices), "mistake": mistake}

    def _translate(self, shard: Shard) -> list[str]:
        """Return the notices about the lines; none if an earlier attempt was successful."""
        job = self.job
        if shard.file(job.folder).exists():
            return []
        for path in (job.text, job.folder):
            if not path.exists():
                raise ClusterError(
                    f"{path} does not exist; the input, the output and the model must be in "
                    "folders that all machines share"
                )
        self._count_attempt(shard)
        return translate_shard(self._translator, shard, job.text, job.source, job.form, job.folder)

    def _count_attempt(self, shard: Shard) -> None:
        """Give up on a shard that has ended several workers; Ray would try for ever."""
        path = attempts_file(shard, self.job.folder)
        with path.open("ab") as file:
            file.write(b".")
        if path.stat().st_size > ATTEMPTS:
            last = shard.first_line + shard.lines - 1
            raise ClusterError(
                f"{ATTEMPTS} workers died while they translated the lines {shard.first_line:,} to "
                f"{last:,} of {self.job.source}, most likely for lack of memory; use machines "
                "with more, or shorten these lines"
            )

    @cached_property
    def _translator(self) -> Translator:
        return self.job.model.load()


def attempts_file(shard: Shard, folder: Path) -> Path:
    """Return the file whose size is the number of attempts to translate a shard."""
    return shard.file(folder).with_suffix(".attempts")
