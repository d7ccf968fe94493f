"""Progress in the terminal: a bar at the bottom, or plain lines if stderr is no terminal."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from transduce.errors import printable
from transduce.monitoring.metrics import ATTEMPTS
from transduce.monitoring.records import Record

# Plain lines come after 1 % of the time so far, but not closer or further apart than these seconds.
SHORTEST_PAUSE = 10.0
LONGEST_PAUSE = 600.0
SHOWN_SAMPLES = 2
# Kinds of records with scores, and how they are shown.
VALIDATIONS = {
    "validation": "validation",
    "average": "validation of the averaged checkpoints",
    "test": "test set, best model",
}
NUMBER_FORMATS = {"loss": ".3f", "perplexity": ".4g", "bleu": ".1f", "chrf": ".1f"}
NUMBER_NAMES = {"bleu": "BLEU", "chrf": "chrF"}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Continue silently if the reader of stderr is gone; rich would end the program."""
        self.quiet = True


class Display:
    """Shows the records of a run on stderr as they come."""

    def __init__(self, total_steps: int) -> None:
        self._console = _Console(stderr=True, highlight=False)
        self._total_steps = total_steps
        self._latest: Record = {}  # the last step record
        self._ongoing: Record = {}  # an event that lasts, such as compiling
        self._start = time.monotonic()
        self._next_line = self._start
        self._live: Live | None = None
        # A bar only where the cursor can be moved.
        if self._console.file.isatty() and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console, get_renderable=self._frame, redirect_stdout=False
            )
            self._live.start()

    def write(self, record: Record) -> None:
        """Show a record: a step moves the bar, everything else is a line above it."""
        self._end_ongoing()
        kind = record["kind"]
        step = f"step {record['step']:,}"
        if kind == "step":
            self._latest = record
            self._show_step(record)
        elif kind in VALIDATIONS:
            self.say("  ".join([step, VALIDATIONS[kind], *_scores(record)]), style="bold")
            for sample in record["samples"][:SHOWN_SAMPLES]:
                self._show_sample(sample)
        elif kind in ATTEMPTS:
            self._latest = {"step": record["step"]}
            self.say(_opening(record))
        elif kind == "finish":
            self.say(f"{step}  {record['message']}", style="bold")
        else:
            self._show_event(record)

    def say(self, line: str, style: str = "") -> None:
        """Print a line above the bar; a terminal wraps it between words."""
        self._console.print(Text(printable(line), style=style), soft_wrap=self._live is None)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show_step(self, record: Record) -> None:
        """Print a plain line, if there is no bar and the last line was some time ago."""
        now = time.monotonic()
        is_last = record["step"] >= self._total_steps
        if self._live is not None or (now < self._next_line and not is_last):
            return
        pause = 0.01 * (now - self._start)
        self._next_line = now + min(max(pause, SHORTEST_PAUSE), LONGEST_PAUSE)
        step = f"step {record['step']:,}/{self._total_steps:,}"
        time_left = f"{clock(record['seconds_left'])} left"
        self.say("  ".join([step, *step_figures(record), time_left]))

    def _show_sample(self, sample: list[str]) -> None:
        source, reference, hypothesis = sample
        self.say(f"    source      {source}", style="dim")
        self.say(f"    reference   {reference}", style="dim")
        self.say(f"    hypothesis  {hypothesis}")

    def _show_event(self, record: Record) -> None:
        # Compiling and validating last: the bar shows them with their time until the next record.
        lasts = record["event"].endswith("ing")
        if lasts:
            self._ongoing = record
        if not lasts or self._live is None:
            style = "dim" if lasts or record["event"] == "saved" else "yellow"
            self.say(f"step {record['step']:,}  {record['event']}: {record['message']}", style)

    def _end_ongoing(self) -> None:
        event = self._ongoing
        self._ongoing = {}
        if not event:
            return
        seconds = time.time() - event["time"]
        if seconds >= 1:
            self.say(f"step {event['step']:,}  {event['event']} took {clock(seconds)}", style="dim")

    def _frame(self) -> Group:
        """Return the bar as it is now. The terminal's refresh thread calls this."""
        # Read each once: the training thread may replace them.
        record = self._latest
        ongoing = self._ongoing

        # The bar with the step, the share of the steps done, and the time left.
        step = record.get("step", 0)
        total = max(self._total_steps, 1)
        time_left = ""
        if record.get("seconds_left") is not None:
            age = time.time() - record["time"]
            time_left = f"{clock(record['seconds_left'] - age)} left"
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(
            f"step {step:,}/{self._total_steps:,}",
            ProgressBar(total=total, completed=step),
            f"{100 * step / total:.0f}%  {time_left}",
        )

        # Below it the figures of the last report, and what is going on.
        lines: list[RenderableType] = [bar]
        if "loss" in record:
            figures = fit_to_width(step_figures(record), self._console.width)
            lines.append(Text(figures, style="cyan"))
        if ongoing:
            seconds = time.time() - ongoing["time"]
            lines.append(Text(f"{ongoing['event']} {clock(seconds)}", style="yellow"))
        return Group(*lines)


def step_figures(record: Record) -> list[str]:
    """Return the figures of a step record as text, the most important first."""
    figures = _scores(record)
    rate = record["learning_rate"]
    figures.append("learning rate not finite" if rate is None else f"learning rate {rate:.2g}")
    figures.append(f"{compact(record['target_tokens_per_second'])} tokens/s")
    if record["peak_share"] is not None:
        figures.append(f"{record['peak_share']:.0%} of peak")
    figures.append(f"data wait {record['data_share']:.0%}")
    # Without label smoothing it is the loss.
    if record["objective"] not in (None, record["loss"]):
        figures.append(f"objective {record['objective']:.3f}")
    return figures


def fit_to_width(figures: list[str], width: int) -> str:
    """Return a line with as many of the first figures as fit."""
    line = "  ".join(figures)
    while len(line) > width:
        figures = figures[:-1]
        line = "  ".join(figures)
    return line


def compact(number: float) -> str:
    """Format 1234567 as 1.23M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def clock(seconds: float | None) -> str:
    """Format seconds as 42 s, 3:07 or 27:03:07."""
    if seconds is None:
        return "?"
    whole_seconds = max(int(seconds), 0)
    minutes = whole_seconds // 60 % 60
    hours = whole_seconds // 3600
    if hours:
        return f"{hours}:{minutes:02}:{whole_seconds % 60:02}"
    if minutes:
        return f"{minutes}:{whole_seconds % 60:02}"
    return f"{whole_seconds} s"


def _scores(record: Record) -> list[str]:
    """Return the loss, perplexity, BLEU and chrF of a record as text, as far as it has them."""
    scores = []
    for name, number_format in NUMBER_FORMATS.items():
        if name not in record:
            continue
        label = NUMBER_NAMES.get(name, name)
        if record[name] is not None:
            scores.append(f"{label} {record[name]:{number_format}}")
        elif name in ("loss", "perplexity"):
            scores.append(f"{label} not finite")
        # Otherwise there is no score because nothing was translated.
    return scores


def _opening(record: Record) -> str:
    device = record["hardware"].get("gpu") or record["hardware"]["cpu"]
    action = "training"
    if record["kind"] == "resume":
        action = f"resuming after step {record['step']:,},"
    return (
        f"{action} to step {record['total_steps']:,} on {device}; "
        f"watch it with: transduce watch {record['run']}"
    )
