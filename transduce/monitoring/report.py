"""A run on one page: report.html holds curves, samples, cost, events, recipe and machine, and needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from transduce.monitoring.metrics import History, Record, read_metrics
from transduce.monitoring.svg import chart
from transduce.monitoring.terminal import clock, compact

FILE_NAME = "report.html"
# Table 2: BLEU on newstest2014 English-German, and training cost in FLOPs.
TABLE_2 = (("Transformer (base model)", 27.3, 3.3e18), ("Transformer (big)", 28.4, 2.3e19))
SHOWN_EVENTS = 60
SAMPLE_PARTS = ("source", "reference", "translation")
SUPERSCRIPTS = str.maketrans(
    "0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def write_report(run: Path) -> Path:
    """Write report.html into the run, which may still be going on; its path."""
    history = read_metrics(run)
    page = _page(run.resolve().name, history)
    path = run / FILE_NAME
    unfinished = path.with_suffix(".html.partial")
    unfinished.write_text(page, encoding="utf-8", errors="replace")
    os.replace(unfinished, path)
    return path


def _page(name: str, history: History) -> str:
    style = files("transduce.training").joinpath("report.css").read_text(encoding="utf-8")
    attempt = history.attempt
    sections = {
        "Curves": f'<div class="charts">{"".join(_charts(history))}</div>',
        "Cost": _cost(history),
        "Samples of the last validation": _samples(history),
        "Events": _events(history),
        "Hardware": _table(
            (),
            [(key.replace("_", " "), value) for key, value in attempt.get("hardware", {}).items()],
        ),
        "Recipe": f"<details><summary>all settings</summary><pre>{escape(attempt.get('recipe', ''))}</pre></details>",
    }
    body = "".join(
        f"<section><h2>{escape(title)}</h2>{text}</section>" for title, text in sections.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(name)} · transduce</title><style>{style}</style></head>"
        f"<body><header><h1>{escape(name)}</h1><p>{escape(_status(history))}</p></header>"
        f"{_tiles(history)}{body}</body></html>\n"
    )


def _status(history: History) -> str:
    total = history.attempt.get("total_steps", 0)
    finish = history.of("finish")
    ending = f": {finish[-1]['message']}" if finish else ""
    return f"{history.status}{ending}, {history.step:,} of {total:,} steps"


def _tiles(history: History) -> str:
    """The numbers one looks for first."""
    steps, validations = history.of("step"), history.of("validation")
    tokens, seconds = (
        sum(record[name] or 0 for record in steps) for name in ("target_tokens", "step_seconds")
    )
    tiles = []
    if best := max(
        (record for record in validations if record["bleu"] is not None),
        key=lambda r: r["bleu"],
        default=None,
    ):
        tiles += [("best BLEU", f"{best['bleu']:.1f}", f"at step {best['step']:,}")]
    if validations and validations[-1]["perplexity"] is not None:
        tiles += [
            ("perplexity", f"{validations[-1]['perplexity']:.3g}", "per token, last validation")
        ]
    tiles += [("time", clock(history.seconds), "all attempts together")]
    if seconds:
        shares = [record["peak_share"] for record in steps if record["peak_share"] is not None]
        of_peak = f", {sum(shares) / len(shares):.0%} of peak" if shares else ""
        tiles += [("speed", compact(tokens / seconds), f"target tokens/s{of_peak}")]
    tiles += [("cost", _flops(history.flops), "FLOPs")]
    return '<dl class="tiles">{}</dl>'.format(
        "".join(
            f"<div><dt>{name}</dt><dd>{value}</dd><dd>{note}</dd></div>"
            for name, value, note in tiles
        )
    )


def _charts(history: History) -> Iterable[str]:
    scores = {
        "BLEU": history.curve("validation", "bleu"),
        "chrF": history.curve("validation", "chrf"),
    }
    waiting = [(step, 100 * share) for step, share in history.curve("step", "data_share")]
    yield chart("Loss per target token, without smoothing", history.losses())
    yield chart("Validation scores", scores, from_zero=True)
    yield chart("Learning rate", {"rate": history.curve("step", "learning_rate")}, from_zero=True)
    yield chart("Gradient norm", {"norm": history.curve("step", "gradient_norm")}, logarithmic=True)
    yield chart(
        "Target tokens",
        {"a second": history.curve("step", "target_tokens_per_second")},
        from_zero=True,
    )
    yield chart("Waiting for data", {"% of the time": waiting}, from_zero=True)


def _cost(history: History) -> str:
    scores = [record["bleu"] for record in history.of("validation") if record["bleu"] is not None]
    rows: list[tuple[Any, ...]] = [
        ("this run", f"{max(scores):.1f}" if scores else "", _flops(history.flops))
    ]
    rows += [(name, f"{bleu:.1f}", _flops(flops)) for name, bleu, flops in TABLE_2]
    note = (
        "FLOPs of this run count the products of its steps, forward and backward. Table 2 of the paper multiplies "
        "hours by what the GPUs sustain, and its BLEU is of newstest2014 English-German; this run's is its best."
    )
    return _table(("model", "BLEU", "training cost, FLOPs"), rows) + f'<p class="note">{note}</p>'


def _samples(history: History) -> str:
    validations = history.of("validation")
    samples = [
        zip(SAMPLE_PARTS, sample, strict=False)
        for sample in (validations[-1]["samples"] if validations else [])
    ]
    return "".join(
        '<dl class="sample">'
        + "".join(f'<dt>{name}</dt><dd dir="auto">{escape(text)}</dd>' for name, text in sample)
        + "</dl>"
        for sample in samples
    ) or f'<p class="none">{history.no_translations}</p>'  # fmt: skip


def _events(history: History) -> str:
    """What was out of the ordinary: neither a checkpoint saved nor the beginning of something that lasts."""
    events = [
        record for record in history.records if record["kind"] in ("event", "resume", "finish")
    ]
    named = [(record, str(record.get("event", record["kind"]))) for record in events]
    rows = [
        (f"{record['step']:,}", name, _message(record))
        for record, name in named
        if name != "saved" and not name.endswith("ing")
    ]
    hidden = len(rows) - SHOWN_EVENTS
    note = f'<p class="note">and {hidden:,} before these</p>' if hidden > 0 else ""
    return (
        _table(("step", "event", ""), rows[-SHOWN_EVENTS:]) + note
        if rows
        else '<p class="none">none</p>'
    )


def _message(record: Record) -> str:
    return str(record.get("message") or f"a new attempt begins after step {record['step']:,}")


def _flops(number: float) -> str:
    """3.3e18 as people write it, 3.3 x 10^18."""
    if number <= 0:
        return "0"
    digits, power = f"{number:.1e}".split("e")
    return f"{digits} \N{MULTIPLICATION SIGN} 10{str(int(power)).translate(SUPERSCRIPTS)}".replace(
        " ", "\N{NO-BREAK SPACE}"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    top = (
        f"<thead><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr></thead>"
        if head
        else ""
    )
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row)}</tr>" for row in rows
    )
    return f'<div class="scroll"><table>{top}<tbody>{lines}</tbody></table></div>'
