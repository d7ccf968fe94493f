"""Records as curves and texts in TensorBoard. Importing this module requires tensorboard."""

from __future__ import annotations

import shutil
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from transduce.monitoring.metrics import Record

NOT_CURVES = ("step", "time", "steps")
SPARE_BYTES = 1 << 20  # of free disk space, below which nothing is written


class TensorBoardSink:
    """Writes to `tensorboard/` in the run; hides what an earlier attempt wrote after a step."""

    def __init__(self, run: Path, start_step: int) -> None:
        self._folder = run / "tensorboard"
        self._writer = SummaryWriter(self._folder, purge_step=start_step + 1 if start_step else 0)

    def write(self, record: Record) -> None:
        """Write numbers as curves; samples, events and the recipe as texts."""
        # On a full disk the writer's thread would end with a traceback.
        if shutil.disk_usage(self._folder).free < SPARE_BYTES:
            return

        kind = record["kind"]
        step = record["step"]
        if kind in ("step", "validation"):
            for name, value in record.items():
                if isinstance(value, int | float) and name not in NOT_CURVES:
                    self._writer.add_scalar(f"{kind}/{name}", value, step, walltime=record["time"])
        for number, sample in enumerate(record.get("samples", ()), start=1):
            text = "\n\n".join(map(_verbatim, sample))
            self._writer.add_text(f"samples/{number}", text, step)
        if kind == "event":
            self._writer.add_text(f"events/{record['event']}", _verbatim(record["message"]), step)
        if "recipe" in record:
            self._writer.add_text("recipe", _verbatim(record["recipe"]), step)
        self._writer.flush()

    def close(self) -> None:
        """Write everything to disk and close."""
        self._writer.close()


def _verbatim(text: str) -> str:
    """Return text as a Markdown code block, by indentation."""
    return "\n".join(f"    {line}" for line in text.split("\n"))
