"""List where the time of a run goes: CUDA kernels on a GPU, operations on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

Kernel = tuple[float, int, str]  # total milliseconds, number of calls, name


def kernels_of(run: Callable[[], object], device: torch.device) -> list[Kernel]:
    """Return all kernels of one run, the most expensive first."""
    cuda = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as record:
        run()
        if cuda:
            torch.cuda.synchronize()

    # The profiler counts in microseconds.
    kernels = []
    for event in record.key_averages():
        microseconds = event.self_device_time_total if cuda else event.self_cpu_time_total
        kernels.append((microseconds / 1e3, event.count, event.key))
    return sorted(kernels, reverse=True)
