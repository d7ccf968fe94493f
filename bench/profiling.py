"""Where time goes on a device: the kernels of a run, or on a CPU its operations."""

from __future__ import annotations

from collections.abc import Callable

import torch

Kernel = tuple[float, int, str]  # milliseconds in all, how often, name


def kernels_of(run: Callable[[], object], device: torch.device) -> list[Kernel]:
    """All kernels of one run, the dearest first."""
    cuda, activity = device.type == "cuda", torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as record:
        run()
        if cuda:
            torch.cuda.synchronize()
    kernels = [
        (
            (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e3,
            event.count,
            event.key,
        )
        for event in record.key_averages()
    ]
    return sorted(kernels, reverse=True)
