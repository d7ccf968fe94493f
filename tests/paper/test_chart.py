"""Charts: axes whose marks can be told apart, and dots that say what they are."""

import re

from transduce.paper.chart import dot_rows, line_chart


def labels(svg):
    """Return the texts beside the marks of both axes."""
    return re.findall(r'fill="#555" font-weight="normal" font-size="11">([^<]+)</text>', svg)


def chart(curves, **options):
    return line_chart("title", curves, x_label="x", y_label="", **options)


def test_a_chart_draws_what_an_axis_can_show():
    curves = {"a": [(1.0, 1.0), (10.0, 0.0), (100.0, 10.0)], "<b>": [(1.0, float("nan"))]}
    svg = chart(curves, log_x=True, log_y=True)
    assert svg.count("<circle") == 2
    assert "&lt;b&gt;" in svg
    assert "nothing measured" in chart({})


def test_an_axis_of_powers_of_two_ends_where_they_end():
    svg = chart({"a": [(64.0, 1e12), (1024.0, 2e12), (8192.0, 3e12)]}, log_x=True, log_y=True)
    found = [label for label in ("64", "1,024", "8,192", "10k", "1T") if label in labels(svg)]
    assert found == ["64", "1,024", "8,192", "1T"]


def test_the_marks_of_an_axis_have_different_labels():
    svg = chart({"a": [(0.0, 18.342), (1e4, 18.347)], "b": [(5e3, 18.345)]})
    found = labels(svg)
    assert {"18.342", "18.344", "5,000", "10,000"} <= set(found)
    assert len(set(found)) == len(found)
    assert {"1e16", "1e17"} <= set(labels(chart({"a": [(9e16, 1.0)]}, log_x=True)))


def test_a_row_of_dots_has_its_name_and_both_values():
    rows = {"one": (-1.0, 0.5), "other": (0.0, 0.0)}
    svg = dot_rows("title", rows, ("paper", "ours"), x_label="BLEU")
    assert [name for name in ("one", "other", "paper", "ours") if f">{name}</text>" in svg] == [
        "one", "other", "paper", "ours"
    ]  # fmt: skip
    (_, y), (_, same) = re.findall(r'cx="([0-9.]+)" cy="([0-9.]+)"', svg)[:2]
    assert y == same
    assert svg.count("<circle") == 4
    assert "nothing measured" in dot_rows("empty", {}, (), x_label="")
