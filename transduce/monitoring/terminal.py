"""What a run looks like in a terminal: a bar that stays at the bottom, or plain lines where there is no terminal."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from transduce.monitoring.metrics import ATTEMPTS, Record

FIRST_PAUSE, LAST_PAUSE = (
    10.0,
    600.0,
)  # seconds between plain lines: 1 % of the time so far, within these
SHOWN_SAMPLES = 2


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The reader of stderr went away: the training goes on unseen (rich would end the program)."""
        self.quiet = True


class Display:
    """Shows records on stderr as they come."""

    def __init__(self, total_steps: int) -> None:
        self._console = _Console(stderr=True, highlight=False)
        self._total_steps = total_steps
        self._latest: Record = {}
        self._under_way: Record = {}
        self._began = time.monotonic()
        self._next_line = self._began
        self._live: Live | None = None
        if self._console.file.isatty() and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console, get_renderable=self._frame, redirect_stdout=False
            )
            self._live.start()

    def write(self, record: Record) -> None:
        """One record: a step moves the bar, everything else is a line above it."""
        self._end_what_was_under_way()
        kind, at = record["kind"], f"step {record['step']:,}  "
        if kind == "step":
            self._latest = record
            self._say_step(record)
        elif kind == "validation":
            self.say(at + "  ".join(["validation", *_named_numbers(record)]), style="bold")
            for sample in record["samples"][:SHOWN_SAMPLES]:
                for name, text in zip(("source", "reference", "hypothesis"), sample, strict=True):
                    self.say(f"    {name:<11} {text}", style="" if name == "hypothesis" else "dim")
        elif kind in ATTEMPTS:
            self._latest = {"step": record["step"]}
            self.say(_opening(record))
        elif kind == "finish":
            self.say(f"{at}{record['message']}", style="bold")
        else:
            self._show_event(record)

    def say(self, line: str, style: str = "") -> None:
        """A line above the bar; on a terminal it is folded between words."""
        self._console.print(Text(printable(line), style=style), soft_wrap=self._live is None)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say_step(self, record: Record) -> None:
        now = time.monotonic()
        last = record["step"] >= self._total_steps
        if self._live is None and (now >= self._next_line or last):
            pause = min(max(0.01 * (now - self._began), FIRST_PAUSE), LAST_PAUSE)
            self._next_line = now + pause
            left = [f"{clock(record['seconds_left'])} left"]
            self.say(
                "  ".join(
                    [f"step {record['step']:,}/{self._total_steps:,}", *step_figures(record), *left]
                )
            )

    def _show_event(self, record: Record) -> None:
        # Compiling, validating: shown with its time until the next record.
        lasts = record["event"].endswith("ing")
        if lasts:
            self._under_way = record
        if not lasts or self._live is None:
            style = "dim" if lasts or record["event"] == "saved" else "yellow"
            self.say(f"step {record['step']:,}  {record['event']}: {record['message']}", style)

    def _end_what_was_under_way(self) -> None:
        if self._under_way and (seconds := time.time() - self._under_way["time"]) >= 1:
            self.say(
                f"step {self._under_way['step']:,}  {self._under_way['event']} took {clock(seconds)}",
                style="dim",
            )
        self._under_way = {}

    def _frame(self) -> Group:
        """The bar as it is now; the terminal's refreshing asks for it."""
        record, under_way = self._latest, self._under_way
        step = record.get("step", 0)
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        left = ""
        if record.get("seconds_left") is not None:
            left = f"{clock(record['seconds_left'] - (time.time() - record['time']))} left"
        done = 100 * step / max(self._total_steps, 1)
        bar.add_row(
            f"step {step:,}/{self._total_steps:,}",
            ProgressBar(total=max(self._total_steps, 1), completed=step),
            f"{done:.0f}%  {left}",
        )
        lines: list[RenderableType] = [bar]
        if "loss" in record:
            lines.append(Text(fitting(step_figures(record), self._console.width), style="cyan"))
        if under_way:
            lines.append(
                Text(
                    f"{under_way['event']} {clock(time.time() - under_way['time'])}", style="yellow"
                )
            )
        return Group(*lines)


def step_figures(record: Record) -> list[str]:
    """Loss, perplexity, learning rate, tokens per second, share of the peak, share of waiting: as words.

    The first matter most.
    """
    figures = _named_numbers(record)
    figures.append(f"learning rate {record['learning_rate']:.2g}")
    figures.append(f"{compact(record['target_tokens_per_second'])} tokens/s")
    if record["peak_share"] is not None:
        figures.append(f"{record['peak_share']:.0%} of peak")
    figures.append(f"data wait {record['data_share']:.0%}")
    return figures


def fitting(figures: list[str], width: int) -> str:
    """One line of as many of the first figures as it has room for."""
    while len(line := "  ".join(figures)) > width:
        figures = figures[:-1]
    return line


def compact(number: float) -> str:
    """1234567 -> 1.23M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def clock(seconds: float | None) -> str:
    """Seconds as 42 s, 3:07 or 27:03:07."""
    if seconds is None:
        return "?"
    whole = max(int(seconds), 0)
    minutes, hours = whole // 60 % 60, whole // 3600
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole} s"


def printable(text: str) -> str:
    """The text without the characters that would move a terminal's cursor or change its colours."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _named_numbers(record: Record) -> list[str]:
    places = {"loss": ".3f", "perplexity": ".4g", "bleu": ".1f", "chrf": ".1f"}
    names = {"bleu": "BLEU", "chrf": "chrF"}
    return [
        f"{names.get(name, name)} {'not finite' if record[name] is None else format(record[name], places[name])}"
        for name in places
        # Others: nothing translated.
        if name in record and (record[name] is not None or name in ("loss", "perplexity"))
    ]


def _opening(record: Record) -> str:
    machine = record["hardware"].get("gpu") or record["hardware"]["cpu"]
    begin = "training" if record["kind"] == "start" else f"resuming after step {record['step']:,},"
    return f"{begin} to step {record['total_steps']:,} on {machine}; watch it with: transduce watch {record['run']}"
