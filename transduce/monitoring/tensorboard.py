"""Records as TensorBoard's curves and texts. Importing this needs tensorboard installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from transduce.monitoring.metrics import Record

NOT_CURVES = ("step", "time", "steps")
SPARE = 1 << 20  # bytes of the disk that are left to others


class Board:
    """Writes under `tensorboard/` of the run; what an earlier attempt wrote after `start_step` is hidden."""

    def __init__(self, run: Path, start_step: int) -> None:
        self._folder = run / "tensorboard"
        self._writer = SummaryWriter(self._folder, purge_step=start_step + 1 if start_step else 0)

    def write(self, record: Record) -> None:
        """Numbers become curves; samples, events and the recipe texts."""
        # The writer's thread would end with a traceback.
        if shutil.disk_usage(self._folder).free < SPARE:
            return
        kind, step = record["kind"], record["step"]
        if kind in ("step", "validation"):
            for name, value in record.items():
                if isinstance(value, int | float) and name not in NOT_CURVES:
                    self._writer.add_scalar(f"{kind}/{name}", value, step, walltime=record["time"])
        for number, sample in enumerate(record.get("samples", ()), start=1):
            self._writer.add_text(f"samples/{number}", "\n\n".join(map(_verbatim, sample)), step)
        if kind == "event":
            self._writer.add_text(f"events/{record['event']}", _verbatim(record["message"]), step)
        if "recipe" in record:
            self._writer.add_text("recipe", _verbatim(record["recipe"]), step)
        self._writer.flush()

    def close(self) -> None:
        """Everything is on disk."""
        self._writer.close()


def _verbatim(text: str) -> str:
    """Markdown takes an indented text as it is."""
    return "\n".join(f"    {line}" for line in text.split("\n"))
