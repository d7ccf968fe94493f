"""Figures: every weight that can be seen has a line, and the file is correct XML whatever the text."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from transduce.errors import InputError
from transduce.inspection.figure import FAINT, attention_figure
from transduce.inspection.heat_map import heat_map
from transduce.inspection.inspect import inspect

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def shown(translator, text):
    return inspect(translator, text)


def lines(figure):
    """The opacity of each line, of each head."""
    groups = ElementTree.fromstring(figure).iter(f"{SVG}g")
    return [[float(line.get("stroke-opacity")) for line in group] for group in groups]


def labels(figure):
    return [element.text for element in ElementTree.fromstring(figure).iter(f"{SVG}text")]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_each_weight_of_a_layer_is_a_line_as_strong_as_it(shown, kind):
    drawn = lines(attention_figure(shown, kind, layer=2))
    for head, opacities in enumerate(drawn):
        weights = shown.attention[kind][1, head].flatten()
        expected = weights[weights >= FAINT]
        np.testing.assert_allclose(opacities, expected, atol=0.0051)
    assert len(drawn) == 4


def test_one_head_and_one_word_can_be_drawn_alone(shown):
    figure = attention_figure(shown, "encoder", 1, heads=[3], word="2021")
    rows = [
        i
        for i, token in enumerate(shown.source.tokens)
        if shown.source.words[token.word or 0] == "2021"
    ]
    weights = shown.attention["encoder"][0, 2, rows].flatten()
    (drawn,) = lines(figure)
    np.testing.assert_allclose(drawn, weights[weights >= FAINT], atol=0.0051)
    assert "Encoder self-attention, layer 1 of 2" in labels(figure)


def test_the_tokens_of_both_sides_are_the_labels(shown):
    tokens = [token.text for token in shown.target.tokens] + [t.text for t in shown.source.tokens]
    assert labels(attention_figure(shown, "cross"))[-len(tokens) :] == tokens
    target = [token.text for token in shown.target.tokens]
    assert labels(attention_figure(shown, "decoder"))[-len(target) :] == ["<start>", *target[:-1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 3}, "layer 3 of cross attention does not exist; expected 1 to 2"),
        ({"heads": [5]}, "head 5 of cross attention does not exist; expected 1 to 4"),
        (
            {"kind": "encoder", "word": "May 2021"},
            "the word 'May 2021' is not among the queries of encoder",
        ),
    ],
)
def test_what_does_not_exist_is_refused(shown, options, message):
    with pytest.raises(InputError, match=message):
        attention_figure(shown, **options)


def test_hostile_text_stays_text(translator):
    shown = inspect(translator, 'at "9" & <3 </text> \u202e 5')
    figure = attention_figure(shown, "encoder")
    ElementTree.fromstring(figure)
    assert "</text> \u202e" not in figure
    page = shown._repr_html_()
    assert "&lt;3" in page
    assert "<3" not in page


def test_a_notebook_shows_the_texts_the_notices_and_the_attention(translator):
    page = inspect(translator, "in 98 weeks. Monday")._repr_html_()
    assert page.startswith("<p>in 98 weeks.<br><b>")
    assert "<li>the text has 2 sentences; number 1 is shown</li>" in page
    assert page.count("<svg") == 1


def test_a_heat_map_has_a_square_for_each_head_the_darker_the_more_it_matters():
    changes = {"encoder": np.array([[0.1, -0.2]]), "cross": np.array([[0.4, 0.0], [0.2, 0.1]])}
    figure = heat_map("Rise of the loss", "100 sentences", changes)
    squares = ElementTree.fromstring(figure).iter(f"{SVG}rect")
    found = [
        (s.get("fill"), float(s.get("fill-opacity"))) for s in squares if s.get("fill-opacity")
    ]
    harm, help_ = "#d55e00", "#0072b2"
    assert found == [
        (harm, 0.25),
        (help_, 0.5),
        (harm, 1.0),
        (harm, 0.0),
        (harm, 0.5),
        (harm, 0.25),
    ]
    assert re.findall(r">([+-]\d\.\d+|0)<", figure) == [
        "+0.100",
        "-0.200",
        "+0.400",
        "0",
        "+0.200",
        "+0.100",
    ]
