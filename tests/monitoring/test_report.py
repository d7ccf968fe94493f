"""The report contains the whole run, needs no other file, and escapes every text."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.html_page import HOSTILE, OURS, Page
from transduce.config import CorpusConfig
from transduce.errors import CheckpointError
from transduce.monitoring.report import write_report
from transduce.monitoring.svg import BOTTOM, LEFT, RIGHT, TOP, chart, thin, ticks
from transduce.presets import TINY


def report(run):
    html = write_report(run.folder).read_text(encoding="utf-8")
    return html, Page(html)


def test_the_page_holds_the_whole_run(run):
    run.go(last=50)
    run.go(first=60, start=50, finish=True)
    html, page = report(run)
    for caption in (
        "Loss per target token",
        "Validation scores",
        "Learning rate",
        "Gradient norm",
        "Target tokens",
    ):
        assert caption in page.text
    assert html.count("<svg") == 6
    assert html.count("<polyline") == 8
    for text in (
        "best BLEU",
        "25.0",
        "Zwei Mann sitzt.",
        "[training]",
        "warmup_steps = 400",
        "a new attempt begins",
    ):
        assert text in page.text
    assert "finished: all steps done, 100 of 100 steps" in page.text


def test_cost_is_shown_beside_table_2(run):
    run.go(finish=True)
    text = report(run)[1].text.replace("\N{NO-BREAK SPACE}", " ")
    assert "this run25.06.0 \u00d7 10\u00b9\u2070" in text  # 10 intervals of 1000 pairs of 6e6
    assert "Transformer (base model)27.33.3 \u00d7 10\u00b9\u2078" in text
    assert "Transformer (big)28.42.3 \u00d7 10\u00b9\u2079" in text


def test_every_text_is_shown_as_text(tmp_path):
    from tests.monitoring.conftest import Run

    run = Run(tmp_path / "a<b>&c")
    corpus = CorpusConfig(source=(HOSTILE,), target=(HOSTILE,), name=HOSTILE)
    with run.attempt(recipe=replace(TINY, data=replace(TINY.data, corpora=(corpus,)))) as progress:
        run.validate(progress, 10, samples=[(HOSTILE, HOSTILE, HOSTILE)])
        progress.event(10, HOSTILE, HOSTILE)
        progress.finish(10, HOSTILE)
    _, page = report(run)
    assert page.tags <= OURS
    assert not [
        name
        for name in page.attributes
        if name.startswith("on") or name in ("src", "href", "style")
    ]
    assert page.text.count("<script>alert('x')</script>") >= 6
    assert "a<b>&c" in page.text


def test_the_page_needs_nothing_from_outside(run):
    run.go(finish=True)
    html, page = report(run)
    assert not {"script", "link", "img", "iframe", "object"} & page.tags
    assert not re.search(r"https?:|url\(|@import|//", html)
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html
    assert "width=device-width" in html


@pytest.mark.parametrize("loss", [2.0, float("nan")])
def test_a_run_with_few_records_has_a_page(run, loss):
    with run.attempt():
        assert "nothing recorded" in report(run)[0]
    with run.attempt() as progress:
        run.step(progress, 10, loss=loss, gradient_norm=0.0)
        run.validate(progress, 10, loss=loss, bleu=loss, chrf=loss, perplexity=loss, samples=[])
        _, page = report(run)
    assert "running, 10 of 100 steps" in page.text


def test_only_a_run_has_a_report(tmp_path):
    with pytest.raises(CheckpointError, match="expected the folder of a run"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_hundreds_of_checkpoints_do_not_hide_a_skipped_step(run):
    with run.attempt() as progress:
        progress.event(1, "skipped", "no finite gradient")
        for step in range(2, 400):
            progress.event(step, "saved", f"step-{step:06}")
    assert "no finite gradient" in report(run)[1].text


def test_a_spike_survives_thinning():
    points = [(step, 1.0) for step in range(100_000)]
    points[54_321] = (54_321, 9.0)
    points[-2:] = [(99_998, 7.0), (99_999, 2.0)]
    thinned = thin(points)
    assert len(thinned) <= 601
    assert {(54_321, 9.0), (99_998, 7.0)} <= set(thinned)
    assert thinned[-1] == (99_999, 2.0)
    assert thinned == sorted(thinned)


NUMBERS = st.floats(-1e12, 1e12).filter(lambda number: number == 0 or abs(number) > 1e-12)


@given(st.tuples(NUMBERS, NUMBERS).map(sorted))
def test_ticks_are_few_and_reach_as_far_as_asked(limits):
    low, high = limits
    slack = 1e-6 * max(abs(low), abs(high), high - low)
    inside, outside = ticks(low, high), ticks(low, high, outside=True)
    assert 1 <= len(inside) <= 8
    assert 1 <= len(outside) <= 8
    assert outside[0] <= low + slack
    assert outside[-1] >= high - slack
    assert outside == sorted(outside)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=50), st.booleans(), st.booleans())
def test_every_point_is_inside_the_picture(values, from_zero, logarithmic):
    picture = chart(
        "t", {"c": list(enumerate(values))}, from_zero=from_zero, logarithmic=logarithmic
    )
    places = re.search(r'<polyline points="([^"]*)"', picture).group(1).split()
    assert len(places) == len(values)
    for place in places:
        x, y = map(float, place.split(","))
        assert math.isfinite(x) and LEFT <= x <= RIGHT  # noqa: PT018
        assert math.isfinite(y) and TOP - 1 <= y <= BOTTOM + 1  # noqa: PT018
