"""The headline figures of the project: docs/figures.json.

Each figure has the command that measured it, the hardware, the commit and its values. README.md,
docs/results.md and docs/scaling.md quote these values, and tests/test_numbers.py compares them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from transduce.storage.disk import whole_file

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs/figures.json"

OUTPUT_OPTIONS = ("--json", "--record")

Figure = dict[str, Any]


def read_figures(path: Path = FIGURES) -> dict[str, Figure]:
    """Return all figures by name; a file that does not exist has none."""
    if not path.exists():
        return {}
    figures: dict[str, Figure] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def record_figure(
    path: Path, name: str, values: dict[str, Any], command: str, hardware: dict[str, Any]
) -> None:
    """Write one figure into the file and keep all others as they are.

    The section of docs/results.md that quotes the figure stays; a new figure has none yet.
    """
    figures = read_figures(path)
    section = figures.get(name, {}).get("section", "")

    figures[name] = {
        "section": section,
        "command": command,
        "hardware": describe_hardware(hardware),
        "commit": current_commit(),
        "values": values,
    }

    # An interruption must not damage the figures that are already there.
    text = json.dumps(figures, indent=2, ensure_ascii=False) + "\n"
    with whole_file(path) as file:
        file.write(text.encode())


def command_line(module: str, arguments: list[str]) -> str:
    """Return the command that repeats a measurement, without the names of its output files."""
    words = ["python", "-m", module]
    skip_next = False
    for word in arguments:
        if skip_next:
            skip_next = False
        elif word in OUTPUT_OPTIONS:
            skip_next = True
        elif not word.startswith(tuple(f"{option}=" for option in OUTPUT_OPTIONS)):
            words.append(word)
    return " ".join(words)


def describe_hardware(hardware: dict[str, Any]) -> str:
    """Return the hardware of a run in a few words: the GPU if there is one, else the CPU."""
    if "gpu" in hardware:
        device = f"{hardware['gpus']} x {hardware['gpu']}"
    else:
        device = f"{hardware['cores']} cores of {hardware['cpu']}"
    return f"{device}, torch {hardware['torch']}"


def current_commit() -> str:
    """Return the short hash of the checkout, with `-dirty` if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "unknown"
    return done.stdout.strip()
