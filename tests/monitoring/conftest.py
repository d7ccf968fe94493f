"""A run with made-up numbers."""

from pathlib import Path

import pytest

from transduce.monitoring.progress import Progress
from transduce.presets import TINY

SAMPLES = [
    ("Two men sit.", "Zwei M\u00e4nner sitzen.", "Zwei Mann sitzt."),
    ("A dog.", "Ein Hund.", "Ein Hund."),
]


class Run:
    """Attempts at a run of 100 steps, reported every 10; the numbers depend on the step alone."""

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        self.folder = folder
        self.tensorboard = tensorboard
        self.metrics = folder / "metrics.jsonl"

    def attempt(self, start: int = 0, recipe=TINY) -> Progress:
        return Progress(self.folder, recipe, 100, start, 6e6, 1e9, self.tensorboard)

    def step(self, progress: Progress, step: int, **changes) -> None:
        values = {
            "loss": 9 - 0.05 * step,
            "perplexity": 20.0,
            "objective": 9.5 - 0.05 * step,
            "learning_rate": 1e-3,
            "gradient_norm": 0.5,
        }
        values |= {
            "target_tokens": 1100,
            "source_tokens": 900,
            "step_seconds": 10.0,
            "data_seconds": 0.5,
        }
        progress.step(step, **(values | changes))

    def validate(self, progress: Progress, step: int, **changes) -> None:
        values = {
            "loss": 8 - 0.04 * step,
            "perplexity": 15.0,
            "bleu": step / 4,
            "chrf": step / 2,
            "samples": SAMPLES,
        }
        progress.validation(step, **(values | changes))

    def go(self, first: int = 10, last: int = 100, start: int = 0, finish: bool = False) -> None:
        with self.attempt(start) as progress:
            for step in range(first, last + 1, 10):
                self.step(progress, step)
                if step % 50 == 0:
                    self.validate(progress, step)
            if finish:
                progress.finish(last, "all steps done")


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")
