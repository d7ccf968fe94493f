"""Checkpoints: complete training states on disk, verified when they are read.

A run has `step-NNNNNN/` folders (see `sealed_folder`) with one safetensors file per group of
tensors (weights, optimizer, random states) and `progress.json` for everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
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
from transduce.storage.tensors import TensorType

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
    """A verified training state. `damaged` has the errors of all newer checkpoints."""

    path: Path
    step: int
    progress: dict[str, Any]
    groups: tuple[str, ...]
    damaged: tuple[str, ...] = ()

    def tensors(self, group: str, device: str | torch.device = "cpu") -> dict[str, Tensor]:
        """Return the tensors of a group by name."""
        if group not in self.groups:
            raise CheckpointError(
                f"{self.path} has no tensors {group!r}; it has {', '.join(self.groups)}"
            )
        file = self.file(group)
        try:
            return load_file(file, device=str(device))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file} cannot be read ({error}); {CHECKPOINT.remedy}") from None

    def file(self, group: str) -> Path:
        """Return the file with the tensors of a group."""
        return self.path / _file_of(group)

    def types(self, group: str) -> dict[str, TensorType]:
        """Return the type of each tensor of a group, without reading the tensors."""
        file = self.file(group)
        try:
            with safe_open(file, framework="pt") as tensors:
                return _types(tensors)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file} cannot be read ({error}); {CHECKPOINT.remedy}") from None


def save_checkpoint(folder: Path, step: int, tensors: Groups, progress: Mapping[str, Any]) -> Path:
    """Write the state at a step completely or not at all.

    An existing, undamaged checkpoint of the same step stays as it is.
    """
    tidy(folder)
    path = folder / f"step-{step:06d}"

    # A damaged checkpoint of the same step makes way; `write_folder` refuses a newer format.
    if path.exists():
        if verifies(path):
            return path
        if not has_newer_format(path, CHECKPOINT):
            delete_folder(path, CHECKPOINT)

    text = json.dumps({**progress, "step": step}, indent=1)
    files: dict[str, Content] = {PROGRESS: text.encode()}
    for group, members in tensors.items():
        files[_file_of(group)] = members
    return write_folder(path, CHECKPOINT, files)


def load_newest(
    folder: Path, check: Callable[[Checkpoint], None] = lambda checkpoint: None
) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, or None if the run has no checkpoint.

    `check` raises a CheckpointError for a checkpoint that cannot be used. It is an error if all are
    damaged, or if one was written by a newer version of transduce:
    starting from scratch would silently lose the progress.
    """
    damaged: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            checkpoint = _load(path, tuple(damaged))
            check(checkpoint)
            return checkpoint
        except CheckpointError as error:
            if has_newer_format(path, CHECKPOINT):
                raise
            # The remedy would be to remove it, which is unnecessary: an older one is used.
            damaged.append(str(error).partition(CHECKPOINT.remedy)[0].rstrip(":; "))
    if damaged:
        raise CheckpointError(
            f"no checkpoint in {folder} can be used (the newest: {damaged[0]}); restore one from "
            "a backup, or choose another folder for a new run"
        )
    return None


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first, without verifying them."""
    paths = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{6,}", path.name)]
    return sorted(paths, key=step_of)


def best_checkpoints(
    folder: Path, n: int, score: Callable[[dict[str, Any]], float | None]
) -> list[Path]:
    """Return the n checkpoints whose progress scores highest, best first.

    Damaged checkpoints and those without a score are left out.
    """
    scored = []
    for path in checkpoints(folder):
        with suppress(CheckpointError):
            value = score(_load(path, only=[PROGRESS]).progress)
            if value is not None:
                scored.append((value, path))
    return [path for _, path in sorted(scored, reverse=True)[:n]]


def keep_last(folder: Path, n: int, protect: Collection[int] = ()) -> None:
    """Remove all checkpoints but the last n and the protected steps.

    The newest undamaged one is never removed.
    """
    newest_first = checkpoints(folder)[::-1]
    newest_undamaged = next(filter(verifies, newest_first), None)
    for path in reversed(newest_first[n:]):
        if path != newest_undamaged and step_of(path) not in protect:
            delete_folder(path, CHECKPOINT)


def average(paths: Sequence[Path], group: str = "model") -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints (§6.1).

    The mean is computed tensor by tensor, so memory holds one model and not n.
    """
    if not paths:
        raise CheckpointError("no checkpoint to average; expected at least one")
    file = _file_of(group)
    for path in paths:
        verify_folder(path, CHECKPOINT, only=[file])
    with ExitStack() as stack:
        models = [stack.enter_context(safe_open(path / file, framework="pt")) for path in paths]
        types = _types(models[0])
        for path, model in zip(paths, models, strict=True):
            if _types(model) != types:
                raise CheckpointError(
                    f"{path / file} and {paths[0] / file} have different tensors; expected "
                    "checkpoints of one model"
                )
        averaged = {}
        for name in types:
            tensors = (model.get_tensor(name) for model in models)
            averaged[name] = _mean(tensors, len(models))
        return averaged


def _types(file: Any) -> dict[str, TensorType]:
    """Return the types of the tensors in an open safetensors file."""
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    return {
        name: TensorType(part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()
    }


def _load(
    path: Path, damaged: tuple[str, ...] = (), only: Collection[str] | None = None
) -> Checkpoint:
    names = verify_folder(path, CHECKPOINT, only)
    groups = tuple(name.removesuffix(".safetensors") for name in names if name != PROGRESS)
    return Checkpoint(path, step_of(path), _read_progress(path), groups, damaged)


def _read_progress(path: Path) -> dict[str, Any]:
    """Return the JSON object of a checkpoint, whose step must be that of its name."""
    try:
        progress = json.loads((path / PROGRESS).read_bytes())
    except (ValueError, RecursionError):
        progress = None
    except OSError as error:
        raise CheckpointError(
            f"{path / PROGRESS} cannot be read ({error.strerror}); {CHECKPOINT.remedy}"
        ) from None
    if not isinstance(progress, dict) or progress.get("step") != step_of(path):
        raise CheckpointError(
            f"{path / PROGRESS} is not the JSON object of step {step_of(path):,}; "
            f"{CHECKPOINT.remedy}"
        )
    return progress


def verifies(path: Path) -> bool:
    """Return whether the checkpoint is complete and undamaged."""
    try:
        return bool(verify_folder(path, CHECKPOINT))
    except CheckpointError:
        return False


def _mean(tensors: Iterator[Tensor], count: int) -> Tensor:
    """Return the mean, computed in float64; of integers (a counter, a table) the last one."""
    last = next(tensors)
    total = last.to(torch.float64, copy=True)
    for last in tensors:
        total += last
    return total.div_(count).to(last.dtype) if last.is_floating_point() else last.clone()


def _file_of(group: str) -> str:
    return f"{group}.safetensors"


def step_of(path: Path) -> int:
    """Return the step of a checkpoint's folder."""
    return int(path.name.removeprefix("step-"))
