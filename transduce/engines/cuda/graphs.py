"""CUDA graphs: functions that are recorded once, and then launched as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

_RECORDING = threading.Lock()  # torch can record one graph at a time


class Graphs:
    """Functions that run often on the same tensors: once directly, then as CUDA graphs."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.captures = device.type == "cuda"
        self.recorded: dict[str, torch.cuda.CUDAGraph | None] = {}
        # No graph needs its memory after a replay, so all share one pool.
        self.pool = torch.cuda.graph_pool_handle() if self.captures else None

    def run(self, name: str, function: Callable[[], None]) -> None:
        """Run the function of this name, as a CUDA graph from the second time on."""
        if not self.captures or name not in self.recorded:
            function()
            self.recorded[name] = None
            return
        graph = self.recorded[name]
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with _RECORDING:
                torch.cuda.synchronize(self.device)
                # Each thread has a handle of cuBLAS, and none can be created while recording.
                torch.cuda.current_blas_handle()
                with torch.cuda.graph(graph, self.pool, _stream(self.device), "thread_local"):
                    function()
            self.recorded[name] = graph
        graph.replay()

    def record_event(self) -> Any:
        """Return an event after everything that was launched so far; None on a CPU."""
        return torch.cuda.current_stream().record_event() if self.captures else None


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which graphs of this device are recorded.

    Torch would use one stream for all, on the device of the first graph.
    """
    return torch.cuda.Stream(device)
