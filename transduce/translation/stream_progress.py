"""Progress of a stream: a bar over bytes and lines, which also moves within a long line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from transduce.data.readers.compression import is_compressed
from transduce.translation.result import Sentence


class Progress:
    """How much of a stream is translated. This one shows nothing."""

    def __init__(self) -> None:
        self.bytes = 0
        self.lines = 0
        self._bytes_in_lines = 0  # of all finished lines

    def on_sentence(self, text: int, place: int, count: int, sentence: Sentence) -> None:
        """Count a sentence of a line that is not finished yet."""
        self.bytes += len(sentence.source.encode(errors="replace"))
        self.show()

    def finish_lines(self, lines: Sequence[bytes]) -> None:
        """Count lines with everything between their sentences."""
        self.lines += len(lines)
        self._bytes_in_lines += sum(map(len, lines))
        self.bytes = self._bytes_in_lines
        self.show()

    def show(self) -> None:
        """Show the progress."""


@contextmanager
def show_progress(source: Path | None, target: Path | None) -> Iterator[Progress]:
    """Show a progress bar if stderr is a terminal and translations are not printed to one."""
    if not sys.stderr.isatty() or (target is None and sys.stdout.isatty()):
        yield Progress()
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.BarColumn(),
        progress.TextColumn("{task.fields[lines]:,} lines"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    size = os.path.getsize(source) if source and not is_compressed(source) else None
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, lines=0)

        class ShownProgress(Progress):
            def show(self) -> None:
                bar.update(task, completed=self.bytes, lines=self.lines)

        yield ShownProgress()
