"""A training state on disk: atomic, verified, never pickled, saved while training goes on.

A run keeps `step-NNNNNN/` folders (see `folder`): one safetensors file for each group of tensors (the weights, the
optimizer's, random states: a byte tensor each) and `progress.json` for everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from transduce.errors import CheckpointError
from transduce.storage.sealed_folder import (
    Content,
    Kind,
    delete_folder,
    has_newer_format,
    tidy,
    verify_folder,
    write_folder,
)

Groups: TypeAlias = Mapping[str, Mapping[str, Tensor]]

CHECKPOINT = Kind(
    name="checkpoint",
    version=1,
    error=CheckpointError,
    remedy="remove its folder to go on without it",
)
PROGRESS = "progress.json"


@dataclass(frozen=True)
class Checkpoint:
    """A verified training state. `damaged` says what is wrong with every newer one."""

    path: Path
    step: int
    progress: dict[str, Any]
    groups: tuple[str, ...]
    damaged: tuple[str, ...] = ()

    def tensors(self, group: str, device: str | torch.device = "cpu") -> dict[str, Tensor]:
        """A group of tensors by name."""
        if group not in self.groups:
            raise CheckpointError(
                f"{self.path} holds no {group}; it holds {', '.join(self.groups)}"
            )
        file = self.path / _file_of(group)
        try:
            return load_file(file, device=str(device))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file} cannot be read ({error}); {CHECKPOINT.remedy}") from None


def save_checkpoint(folder: Path, step: int, tensors: Groups, progress: Mapping[str, Any]) -> Path:
    """Write the state at a step, whole or not at all. A step that is there already, undamaged, stays as it is."""
    return _save(folder, step, tensors, _encode(step, progress))


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that verifies, or None in a new run. If all are damaged, or one is of a later transduce,
    that is an error: starting afresh would be a quiet loss."""
    damaged: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            return _load(path, tuple(damaged))
        except CheckpointError as problem:
            if has_newer_format(path, CHECKPOINT):
                raise
            # It is passed over anyway.
            damaged.append(str(problem).partition(CHECKPOINT.remedy)[0].rstrip(":; "))
    if damaged:
        raise CheckpointError(
            f"no checkpoint in {folder} is whole (the newest: {damaged[0]}); restore one from a backup, or choose "
            "another folder for a new run"
        )
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first, verified or not."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{6,}", path.name)]
    return sorted(found, key=step_of)


def best_checkpoints(
    folder: Path, n: int, score: Callable[[dict[str, Any]], float | None]
) -> list[Path]:
    """The n checkpoints whose progress scores highest, best first; none that is damaged or has no score."""
    known = []
    for path in checkpoints(folder):
        with suppress(CheckpointError):
            if (value := score(_load(path, only=[PROGRESS]).progress)) is not None:
                known.append((value, path))
    return [path for _, path in sorted(known, reverse=True)[:n]]


def keep_last(folder: Path, n: int, protect: Collection[int] = ()) -> None:
    """Remove all but the last n checkpoints and the protected steps; never the newest that verifies."""
    newest_first = checkpoints(folder)[::-1]
    newest_whole = next(filter(verifies, newest_first), None)
    for path in reversed(newest_first[n:]):
        if path != newest_whole and step_of(path) not in protect:
            delete_folder(path, CHECKPOINT)


def average(paths: Sequence[Path], group: str = "model") -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints (§6.1), tensor by tensor: in memory is one model, not n."""
    file = _file_of(group)
    if not paths:
        raise CheckpointError("no checkpoint to average; expected at least one")
    for path in paths:
        verify_folder(path, CHECKPOINT, only=[file])
    with ExitStack() as stack:
        opened = [stack.enter_context(safe_open(path / file, framework="pt")) for path in paths]
        shapes = [
            {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
            for weights in opened
        ]
        for path, other in zip(paths, shapes, strict=True):
            if other != shapes[0]:
                raise CheckpointError(
                    f"{path / file} and {paths[0] / file} hold other tensors; expected one model"
                )
        return {
            name: _mean((weights.get_tensor(name) for weights in opened), len(opened))
            for name in shapes[0]
        }


class BackgroundSaver:
    """Saves while training goes on: `save` takes a copy of the state and returns, a thread writes it. One at a time;
    what goes wrong in the thread is raised by the next call. Of many ranks, only one has a saver."""

    def __init__(self, folder: Path, keep: int | None = None) -> None:
        self.folder = folder
        self.keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._saving: Future[Path] | None = None

    def save(
        self, step: int, tensors: Groups, progress: Mapping[str, Any], protect: Collection[int] = ()
    ) -> None:
        """Save the state as it is now, then remove all but the last `keep` checkpoints and the protected steps."""
        self.wait()
        text = _encode(step, progress)
        copies, stream = _snapshot(tensors)
        self._saving = self._thread.submit(self._write, step, copies, text, tuple(protect), stream)

    def wait(self) -> Path | None:
        """Wait for the save under way, if any; where it was written."""
        saving, self._saving = self._saving, None
        return None if saving is None else saving.result()

    def look(self) -> None:
        """Raise what went wrong, if the save under way has ended."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def __enter__(self) -> BackgroundSaver:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _write(
        self,
        step: int,
        tensors: Groups,
        text: bytes,
        protect: tuple[int, ...],
        stream: torch.cuda.Stream | None,
    ) -> Path:
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            path = _save(self.folder, step, tensors, text)
        if self.keep is not None:
            keep_last(self.folder, self.keep, protect)
        return path


def _snapshot(groups: Groups) -> tuple[Groups, torch.cuda.Stream | None]:
    """A copy that training cannot change, and the stream on which a thread may read it.

    On a GPU the copy is made there if it takes less than half of the free memory: the way to the main memory and to
    the disk is then off the loop's path. Otherwise it is made in the main memory, and the loop waits for it.
    """
    on_gpu = [tensor for group in groups.values() for tensor in group.values() if tensor.is_cuda]
    if not on_gpu:
        return _map(groups, Tensor.clone), None
    free_bytes, _ = torch.cuda.mem_get_info()
    roomy = sum(tensor.nbytes for tensor in on_gpu) < free_bytes / 2
    copies = _map(
        groups, lambda tensor: tensor.clone() if roomy or not tensor.is_cuda else _to_pinned(tensor)
    )
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    if not roomy:
        stream.synchronize()
    return copies, stream


def _to_pinned(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


def _map(groups: Groups, function: Callable[[Tensor], Tensor]) -> Groups:
    return {
        key: {name: function(tensor.detach()) for name, tensor in group.items()}
        for key, group in groups.items()
    }


def _encode(step: int, progress: Mapping[str, Any]) -> bytes:
    return json.dumps({**progress, "step": step}, indent=1).encode()


def _save(folder: Path, step: int, tensors: Groups, progress: bytes) -> Path:
    tidy(folder)
    path = folder / f"step-{step:06d}"
    if path.exists():
        if verifies(path):
            return path
        if not has_newer_format(path, CHECKPOINT):
            delete_folder(path, CHECKPOINT)
    files: dict[str, Content] = {
        PROGRESS: progress,
        **{_file_of(group): members for group, members in tensors.items()},
    }
    return write_folder(path, CHECKPOINT, files)


def _load(
    path: Path, damaged: tuple[str, ...] = (), only: Collection[str] | None = None
) -> Checkpoint:
    names = verify_folder(path, CHECKPOINT, only)
    progress = json.loads((path / PROGRESS).read_bytes())
    groups = tuple(name.removesuffix(".safetensors") for name in names if name != PROGRESS)
    return Checkpoint(path, progress["step"], progress, groups, damaged)


def verifies(path: Path) -> bool:
    try:
        return bool(verify_folder(path, CHECKPOINT))
    except CheckpointError:
        return False


def _mean(tensors: Iterator[Tensor], count: int) -> Tensor:
    """Summed in float64; of whole numbers (a counter, a table) the last."""
    last = next(tensors)
    total = last.to(torch.float64, copy=True)
    for last in tensors:
        total += last
    return total.div_(count).to(last.dtype) if last.is_floating_point() else last.clone()


def _file_of(group: str) -> str:
    return f"{group}.safetensors"


def step_of(path: Path) -> int:
    """The step of a checkpoint's folder."""
    return int(path.name.removeprefix("step-"))
