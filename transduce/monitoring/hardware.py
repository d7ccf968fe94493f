"""The hardware of a run: its description for the records, and its peak speed."""

from __future__ import annotations

import math
import os
import platform
import re
import time
from pathlib import Path
from typing import Any, Literal

from transduce.cores import available_cores

# Peak speed of dense products as the makers state it, in TFLOP/s: (bf16, or fp16 where there is no
# bf16; float32). The first row whose words all occur in the name of the device applies.
PEAK_TFLOPS: dict[str, tuple[float, float]] = {
    "B200": (2250, 75),
    "GB200": (2250, 75),
    "H100 PCIE": (756, 51),
    "H100 NVL": (835, 60),
    "H200": (990, 67),
    "H100": (990, 67),
    "GH200": (990, 67),
    "H800": (990, 67),
    "A100": (312, 19.5),
    "A800": (312, 19.5),
    "A40": (150, 37.4),
    "A30": (165, 10.3),
    "A10": (125, 31.2),
    "L40S": (362, 91.6),
    "L40": (181, 90.5),
    "L4": (121, 30.3),
    "V100": (125, 15.7),
    "T4": (65, 8.1),
    "RTX 5090": (209, 104.8),
    "RTX 4090": (165, 82.6),
    "RTX 4080": (97, 48.7),
    "RTX 3090": (71, 35.6),
    "RTX 3080": (59, 29.8),
    "MI300X": (1307, 163.4),
    "MI250X": (383, 47.9),
}


def peak_flops(device_name: str, precision: Literal["bf16", "float32"] = "bf16") -> float | None:
    """Return the peak FLOP/s of a GPU by its name; None if unknown, as for every CPU."""
    words = set(re.split(r"[^A-Z0-9]+", device_name.upper()))
    for name, (bf16, float32) in PEAK_TFLOPS.items():
        if set(name.split()) <= words:
            return 1e12 * (bf16 if precision == "bf16" else float32)
    return None


def measure_flops(device: Any, *, bf16: bool) -> float:
    """Return the FLOP/s of a matrix product of moderate size on a torch device."""
    import torch

    size = 2048 if device.type == "cuda" else 512
    dtype = torch.bfloat16 if bf16 else torch.float32
    matrix = torch.zeros(size, size, device=device, dtype=dtype)
    best = math.inf
    for _ in range(4):  # the first is slower
        start = time.perf_counter()
        product = matrix @ matrix
        product[0, 0].item()  # waits for the device
        best = min(best, time.perf_counter() - start)
    return float(2 * size**3 / best)


def hardware() -> dict[str, Any]:
    """Return CPU, memory, GPUs and versions, for the records of a run."""
    import torch

    description: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": available_cores(),
        "memory_gib": _memory_gib(),
    }
    # All GPUs of a machine are assumed to be of one kind.
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        description |= {
            "gpu": gpu.name,
            "gpus": torch.cuda.device_count(),
            "gpu_memory_gib": round(gpu.total_memory / 2**30, 1),
        }
    return description | {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_name() -> str:
    # Linux names the CPU; other systems only its architecture.
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    if match:
        return match.group(1).strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return round(size / 2**30, 1)
