"""Save checkpoints in the background, while training goes on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.storage.checkpoint import Groups, keep_last, save_checkpoint


class BackgroundSaver:
    """Saves checkpoints in a thread while training goes on.

    `save` copies the state and returns. One save runs at a time, and an error in the thread is
    raised by the next call. In distributed training only one rank has a saver.
    """

    def __init__(self, folder: Path, keep: int | None = None) -> None:
        self.folder = folder
        self.keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._saving: Future[Path] | None = None

    def save(
        self, step: int, tensors: Groups, progress: Mapping[str, Any], protect: Collection[int] = ()
    ) -> None:
        """Save the current state, then remove old checkpoints.

        The last `keep` checkpoints and the protected steps stay.
        """
        self.wait()
        copies, stream = _snapshot(tensors)
        self._saving = self._thread.submit(
            self._write, step, copies, copy.deepcopy(progress), tuple(protect), stream
        )

    def wait(self) -> Path | None:
        """Wait for the running save, if any, and return the folder that it wrote."""
        saving = self._saving
        self._saving = None
        return None if saving is None else saving.result()

    def look(self) -> None:
        """Raise the error of the last save, if it has ended with one."""
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
        progress: Mapping[str, Any],
        protect: tuple[int, ...],
        stream: torch.cuda.Stream | None,
    ) -> Path:
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            path = save_checkpoint(self.folder, step, tensors, progress)
        if self.keep is not None:
            keep_last(self.folder, self.keep, protect)
        return path


def _snapshot(groups: Groups) -> tuple[Groups, torch.cuda.Stream | None]:
    """Return a copy that training does not change, and the CUDA stream on which to read it.

    If the copy takes less than half of the free GPU memory, it is made there: copying it to main
    memory and writing it then does not delay training. Otherwise it is made in main memory, and
    training waits for it.
    """
    on_gpu = [tensor for group in groups.values() for tensor in group.values() if tensor.is_cuda]
    if not on_gpu:
        return _map(groups, Tensor.clone), None

    free_bytes, _ = torch.cuda.mem_get_info()
    fits_on_gpu = sum(tensor.nbytes for tensor in on_gpu) < free_bytes / 2

    def copy_tensor(tensor: Tensor) -> Tensor:
        return tensor.clone() if fits_on_gpu or not tensor.is_cuda else _to_pinned(tensor)

    copies = _map(groups, copy_tensor)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    if not fits_on_gpu:
        stream.synchronize()
    return copies, stream


def _to_pinned(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


def _map(groups: Groups, function: Callable[[Tensor], Tensor]) -> Groups:
    """Apply a function to each tensor."""
    mapped = {}
    for key, group in groups.items():
        mapped[key] = {name: function(tensor.detach()) for name, tensor in group.items()}
    return mapped
