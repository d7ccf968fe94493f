"""The number of cores that this process may use."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def available_cores() -> int:
    """Return the number of cores that this process may use, as far as the system tells.

    A container may have the time of a few cores only, or of a part of one, on a machine with many.
    """
    return max(1, math.ceil(min(_visible_cores(), _cpu_limit())))


def limit_threads() -> None:
    """Let numerical libraries respect the limit of a container, of which they do not know."""
    if available_cores() < _visible_cores():
        os.environ.setdefault("OMP_NUM_THREADS", str(available_cores()))


def _visible_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_limit() -> float:
    """Return the cores whose time the control groups of this process allow it to use."""
    try:
        return min(_limits(), default=math.inf)
    except (OSError, ValueError):  # not on Linux, or a system that imitates it
        return math.inf


def _limits() -> Iterator[float]:
    """Yield the limits of the control groups of this process, and of all above them."""
    for membership in MEMBERSHIP.read_text().splitlines():
        _, controllers, path = membership.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Version 1 has a hierarchy for each controller.
        hierarchy = CGROUPS / "cpu" if controllers else CGROUPS
        group = PurePosixPath(path)
        for place in (group, *group.parents):
            yield _group_limit(hierarchy / str(place)[1:])


def _group_limit(group: Path) -> float:
    """Return the limit of one group: its quota of time in each period."""
    words: list[str] = []
    for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"):  # the first is of version 2
        with contextlib.suppress(OSError):
            words += (group / name).read_text().split()
    # Without a limit, the quota is "max" or -1.
    if len(words) != 2 or not all(map(str.isdecimal, words)) or int(words[1]) == 0:
        return math.inf
    return int(words[0]) / int(words[1])
