"""report.html: a run on one page without external resources.

The page shows curves, cost, samples, events, hardware and the recipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from transduce.monitoring.html import html_page, html_sample, html_section, html_table
from transduce.monitoring.metrics import History, read_metrics
from transduce.monitoring.records import Record
from transduce.monitoring.svg import chart
from transduce.monitoring.terminal import clock, compact
from transduce.storage.disk import whole_file

FILE_NAME = "report.html"
# Table 2: BLEU on newstest2014 English-German, and training cost in FLOPs.
TABLE_2 = (("Transformer (base model)", 27.3, 3.3e18), ("Transformer (big)", 28.4, 2.3e19))
SHOWN_EVENTS = 60
SAMPLE_PARTS = ("source", "reference", "translation")
SUPERSCRIPTS = str.maketrans(
    "0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def write_report(run: Path) -> Path:
    """Write report.html into the folder of a run, finished or not; return its path."""
    history = read_metrics(run)
    page = _page(run.resolve().name, history)
    path = run / FILE_NAME

    # No reader sees half a page.
    with whole_file(path) as file:
        file.write(page.encode("utf-8", errors="replace"))
    return path


def _page(name: str, history: History) -> str:
    attempt = history.attempt
    hardware = attempt.get("hardware", {})
    recipe = escape(attempt.get("recipe", ""))
    sections = {
        "Curves": f'<div class="charts">{"".join(_charts(history))}</div>',
        "Cost": _cost(history),
        "Samples of the best model": _samples(history),
        "Events": _events(history),
        "Hardware": html_table((), [(key.replace("_", " "), hardware[key]) for key in hardware]),
        "Recipe": f"<details><summary>all settings</summary><pre>{recipe}</pre></details>",
    }
    body = "".join(html_section(title, text) for title, text in sections.items())
    status = _status(history)
    return html_page(f"{name} · transduce", name, _tiles(history) + body, subtitle=status)


def _status(history: History) -> str:
    total = history.attempt.get("total_steps", 0)
    finish = history.of("finish")
    ending = f": {finish[-1]['message']}" if finish else ""
    return f"{history.status}{ending}, {history.step:,} of {total:,} steps"


def _tiles(history: History) -> str:
    """Return the most important numbers, large."""
    steps = history.of("step")
    validations = history.of("validation")
    tiles: list[tuple[str, str, str]] = []  # name, value, note

    # Scores.
    best = history.best
    if best and best["bleu"] is not None:
        tiles.append(("best BLEU", f"{best['bleu']:.1f}", _place(best)))
    tested = [record for record in history.of("test") if record["bleu"] is not None]
    if tested:
        bleu = f"{tested[-1]['bleu']:.1f}"
        tiles.append(("test BLEU", bleu, "best model on the test set"))
    if validations and validations[-1]["perplexity"] is not None:
        perplexity = f"{validations[-1]['perplexity']:.3g}"
        tiles.append(("perplexity", perplexity, "per token, last validation"))

    # Time, speed and cost.
    tiles.append(("time", clock(history.seconds), "all attempts together"))
    seconds = sum(record["step_seconds"] or 0 for record in steps)
    if seconds:
        tokens = sum(record["target_tokens"] or 0 for record in steps)
        shares = [record["peak_share"] for record in steps if record["peak_share"] is not None]
        of_peak = f", {sum(shares) / len(shares):.0%} of peak" if shares else ""
        tiles.append(("speed", compact(tokens / seconds), f"target tokens/s{of_peak}"))
    tiles.append(("cost", _flops(history.flops), "FLOPs"))

    # Large values with small notes.
    items = [
        f"<div><dt>{name}</dt><dd>{value}</dd><dd>{note}</dd></div>" for name, value, note in tiles
    ]
    return f'<dl class="tiles">{"".join(items)}</dl>'


def _place(validation: Record) -> str:
    if validation["kind"] == "average":
        return f"average of {validation['checkpoints']} checkpoints"
    return f"at step {validation['step']:,}"


def _charts(history: History) -> Iterator[str]:
    scores = {
        "BLEU": history.curve("validation", "bleu"),
        "chrF": history.curve("validation", "chrf"),
    }
    rate = history.curve("step", "learning_rate")
    norm = history.curve("step", "gradient_norm")
    speed = history.curve("step", "target_tokens_per_second")
    waiting = [(step, 100 * share) for step, share in history.curve("step", "data_share")]
    yield chart("Loss per target token, without label smoothing", history.losses())
    yield chart("Validation scores", scores, from_zero=True)
    yield chart("Learning rate", {"rate": rate}, from_zero=True)
    yield chart("Gradient norm", {"norm": norm}, logarithmic=True)
    yield chart("Target tokens", {"per second": speed}, from_zero=True)
    yield chart("Waiting for data", {"% of the time": waiting}, from_zero=True)


def _cost(history: History) -> str:
    best = history.best
    best_bleu = f"{best['bleu']:.1f}" if best and best["bleu"] is not None else ""
    rows = [("this run", best_bleu, _flops(history.flops))]
    rows += [(name, f"{bleu:.1f}", _flops(flops)) for name, bleu, flops in TABLE_2]
    note = (
        "The FLOPs of this run are those of the matrix products in its steps, forward and "
        "backward; its BLEU is the best on its validation set. Table 2 of the paper multiplies "
        "training hours by the sustained speed of the GPUs; its BLEU is on newstest2014 "
        "English-German."
    )
    table = html_table(("model", "BLEU", "training cost, FLOPs"), rows)
    return f'{table}<p class="note">{note}</p>'


def _samples(history: History) -> str:
    samples = history.best.get("samples", [])
    if not samples:
        return f'<p class="none">{history.no_translations}</p>'
    return "".join(html_sample(zip(SAMPLE_PARTS, texts, strict=False)) for texts in samples)


def _events(history: History) -> str:
    """Return a table of unusual events: no saved checkpoints, no begin of something that lasts."""
    # Records of all kinds in one list, in the order of steps.
    rows: list[tuple[str, str, str]] = []
    for record in history.records:
        if record["kind"] in ("event", "resume", "finish"):
            name = str(record.get("event", record["kind"]))
            if name != "saved" and not name.endswith("ing"):
                rows.append((f"{record['step']:,}", name, _message(record)))
    if not rows:
        return '<p class="none">none</p>'

    table = html_table(("step", "event", ""), rows[-SHOWN_EVENTS:])
    hidden = len(rows) - SHOWN_EVENTS
    if hidden > 0:
        table += f'<p class="note">and {hidden:,} earlier events</p>'
    return table


def _message(record: Record) -> str:
    return str(record.get("message") or f"a new attempt begins after step {record['step']:,}")


def _flops(number: float) -> str:
    """Format 3.3e18 as 3.3 x 10^18, with a multiplication sign and a superscript."""
    if number <= 0:
        return "0"
    digits, power = f"{number:.1e}".split("e")
    exponent = str(int(power)).translate(SUPERSCRIPTS)
    return f"{digits}\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}10{exponent}"
