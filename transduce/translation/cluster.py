"""Bulk translation on several machines: Ray Data gives the shards of a text to translators.

The input, the output and the models must be in folders that all machines share.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transduce.config import SearchConfig
from transduce.data.workers import progress
from transduce.engines.choose import EngineName, Precision
from transduce.errors import ClusterError, InputError, require
from transduce.storage.bundle import Bundle
from transduce.storage.lock import clear_work_folder, lock_work_folder
from transduce.translation import shards as shard_files
from transduce.translation.documents.text_encoding import Encoding
from transduce.translation.shard_worker import Job, Model, ShardWorker
from transduce.translation.shards import (
    Shard,
    cut,
    finished_shards,
    join,
    seekable_text,
    text_blocks,
)
from transduce.translation.streams import (
    Format,
    print_notice,
    refuse_missing_folder,
    refuse_same_file,
)
from transduce.translation.work_record import open_record

RECORD = "translation.json"
_REACH_SECONDS = 10
_MOST_TASKS = 5_000  # of Ray; one may have several shards


def translate_on_ray(
    bundles: Sequence[Bundle],
    source: Path,
    target: Path,
    *,
    search: SearchConfig,
    form: Format,
    engine: EngineName = "auto",
    device: str | None = None,
    precision: Precision = "auto",
    address: str | None = None,
) -> None:
    """Translate a file line by line on all machines of a Ray cluster.

    Args:
        bundles: The model, or several as an ensemble.
        source: The file to translate.
        target: The file to write. Finished shards are kept in TARGET.partial until all are.
        search: The settings of the search.
        form: The format of the lines.
        engine: The engine of every worker.
        device: "cpu" or "cuda"; by default "cuda" if the cluster has GPUs.
        precision: The numeric precision of every worker.
        address: The address of the cluster; by default the one that this machine belongs to, or
            else this machine alone.
    """
    ray = import_ray()
    _refuse_files(source, target)
    shards = list(cut(source, form))

    folder = target.with_name(f"{target.name}.partial").absolute()
    with _connected(ray, address):
        model = Model(
            bundles=tuple(bundle.path.absolute() for bundle in bundles),
            fingerprints=tuple(bundle.fingerprint for bundle in bundles),
            search=search,
            engine=engine,
            device=_choose_device(device, ray.cluster_resources()),
            precision=precision,
        )
        with lock_work_folder(folder, "translate"):
            _open_folder(folder, model, form, shards)
            text = seekable_text(source, folder, form).absolute()
            _translate_shards(ray, Job(model, form, source, text, folder), shards)
            encoding = Encoding() if form.json else text_blocks(source, form)[0]
            join(shards, folder, target, encoding)


def import_ray() -> Any:
    """Import Ray, and keep it from sending statistics and from printing what no user can act on."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    require("ray.data", extra="ray")
    return require("ray", extra="ray")


def _refuse_files(source: Path, target: Path) -> None:
    if source.exists() and not source.is_file():
        raise InputError(f"{source} is not a file; --on ray reads its text more than once")
    refuse_missing_folder(target)
    if source.exists():
        refuse_same_file(source, target)


def _open_folder(folder: Path, model: Model, form: Format, shards: Sequence[Shard]) -> None:
    """Prepare the folder of finished shards, which must belong to the same work."""
    for path in folder.glob("*.attempts"):
        path.unlink()
    # Without a record, as after an interruption of its removal, nobody knows what shards are of.
    if not finished_shards(folder) or not (folder / RECORD).exists():
        clear_work_folder(folder)
    depends_on = {
        "model": model.fingerprints,
        "search": asdict(model.search),
        "shard size": shard_files.LINES,
        "text": shard_files.text_sha256(shards),
        "format": asdict(form),
        "engine": model.engine,
        "device": model.device,
        "precision": model.precision,
    }
    remedy = "choose another output, or remove this folder and start again"
    open_record(folder / RECORD, depends_on, remedy=remedy)


def _translate_shards(ray: Any, job: Job, shards: Sequence[Shard]) -> None:
    """Translate every shard that is not finished, and show progress."""
    total = sum(shard.lines for shard in shards)
    missing = [shard for shard in shards if not shard.file(job.folder).exists()]
    done = total - sum(shard.lines for shard in missing)
    try:
        with progress("translating", total) as advance:
            advance(done)
            for row in _results(ray, job, missing):
                if row["mistake"]:
                    raise ClusterError(row["mistake"])
                for notice in row["notices"].splitlines():
                    print_notice(notice)
                done += row["lines"]
                advance(row["lines"])
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted after {done:,} of {total:,} lines; run the same command again to continue"
        ) from None


def _results(ray: Any, job: Job, shards: Sequence[Shard]) -> Iterator[dict[str, Any]]:
    """Yield what the workers return for each shard, in any order."""
    if not shards:
        return
    uses_gpu = job.model.device == "cuda"
    resources = ray.cluster_resources()
    workers = int(resources.get("GPU" if uses_gpu else "CPU", 1))
    rows = [asdict(shard) for shard in shards]
    tasks = ray.data.from_items(rows, override_num_blocks=min(len(rows), _MOST_TASKS))
    results = tasks.map(
        ShardWorker,
        fn_constructor_args=(job,),
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(rows))),
        num_cpus=1,
        num_gpus=1 if uses_gpu else None,
    )
    try:
        yield from results.iter_rows()
    except ray.exceptions.RayError as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise ClusterError(
            f"a worker of the Ray cluster failed ({reason}); what is translated is kept in "
            f"{job.folder}: run the same command again to continue"
        ) from error


def _choose_device(device: str | None, resources: Mapping[str, float]) -> str:
    """Return the device of every worker; a translation must not depend on who translated it."""
    gpus = resources.get("GPU", 0)
    if device is None:
        return "cuda" if gpus else "cpu"
    if device.startswith("cuda:"):
        raise InputError(
            f"--device is {device}; expected cuda: Ray gives each worker a GPU of its own"
        )
    if device == "cuda" and not gpus:
        raise ClusterError("--device is cuda, but the Ray cluster has no GPU; use --device cpu")
    return device


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to a Ray cluster, or start Ray on this machine until the block ends."""
    try:
        _reach(address or os.environ.get("RAY_ADDRESS", ""))
        with _muted_stderr():
            ray.init(
                address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ClusterError(
            f"no Ray cluster answers at {address or 'this machine'} ({reason}); start one with ray "
            "start --head, or use --address local for this machine alone"
        ) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        # Ray prints to standard output that a worker died.
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise an OSError if nothing answers at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Hide the line in which Ray says how much it will log, which no setting hides."""
    before = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
