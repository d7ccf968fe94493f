"""A report is plain data that says everything, for one system or several."""

import base64
import dataclasses
import json
import re
import shlex
import xml.dom.minidom
from itertools import chain

import pytest

from tests.evaluation.systems import damaged, parallel_texts
from tests.html_page import HOSTILE, OURS, Page
from transduce.errors import InputError
from transduce.evaluation.figure import length_chart
from transduce.evaluation.perplexity import Perplexity
from transduce.evaluation.report import evaluate, with_models, work
from transduce.evaluation.scores import score
from transduce.evaluation.show import print_report, to_html, to_markdown
from transduce.evaluation.tables import tables

SOURCES, REFERENCES = parallel_texts()
GOOD = damaged(REFERENCES, 0.1)
BAD = damaged(REFERENCES, 0.4)


@pytest.fixture(scope="module")
def report():
    found = evaluate({"runs/a|b": GOOD, "bad.de": BAD}, REFERENCES, SOURCES, resamples=100, worst=2)
    found = with_models(found, ["runs/a|b"], {"runs/a|b": Perplexity(4.5, 1.504, 600, 7)})
    return dataclasses.replace(found, source="test.en", reference="test.de")


def test_the_scores_are_those_of_transduce_score(report):
    for system, hypotheses in zip(report.systems, (GOOD, BAD), strict=True):
        expected = score(hypotheses, REFERENCES)
        assert system.scores["bleu"].value == expected.bleu.value
        assert system.scores["chrf"].value == expected.chrf.value
        assert system.scores["tokenized_bleu"].value == expected.tokenized_bleu.value
        assert system.scores["chrf_plus_plus"].name == "chrF++"


def test_the_first_system_is_the_baseline(report):
    first, second = report.systems
    assert first.scores["bleu"].p_value is None
    assert second.scores["bleu"].p_value < 0.05


def test_ter_is_computed_only_on_request():
    options = {"resamples": 0, "worst": 0}
    plain = evaluate({"a": GOOD[:3]}, REFERENCES[:3], SOURCES[:3], **options)
    assert "ter" not in plain.systems[0].scores
    found = evaluate({"a": GOOD[:3]}, REFERENCES[:3], SOURCES[:3], ter=True, **options)
    expected = score(GOOD[:3], REFERENCES[:3], ter=True).ter
    assert found.systems[0].scores["ter"].value == expected.value


def test_a_report_is_json_that_leaves_out_what_was_not_computed(report):
    values = json.loads(json.dumps(report.to_dict()))
    first, second = values["systems"]
    assert first["perplexity"]["value"] == 4.5
    assert "p_value" not in first["scores"]["bleu"]
    assert second["scores"]["bleu"]["p_value"] == report.systems[1].scores["bleu"].p_value
    assert "perplexity" not in second
    assert "model" not in second
    assert first["worst"][0]["link"].startswith("#inspect?text=")
    assert (values["source"], values["sentences"]) == ("test.en", len(SOURCES))


def test_progress_is_complete_at_the_end():
    done = []
    systems = {"a": GOOD[:3], "b": BAD[:3]}
    evaluate(systems, REFERENCES[:3], SOURCES[:3], resamples=0, ter=True, advance=done.append)
    assert sum(done) == work(2, ter=True)


def test_texts_that_are_not_parallel_are_refused():
    with pytest.raises(InputError, match="59 translations but 60 references"):
        evaluate({"a": GOOD[1:]}, REFERENCES, SOURCES)
    with pytest.raises(InputError, match="59 sources but 60 references"):
        evaluate({"a": GOOD}, REFERENCES, SOURCES[1:])
    with pytest.raises(InputError, match="there is no system to score"):
        evaluate({}, REFERENCES, SOURCES)


def test_the_terminal_shows_scores_a_verdict_and_how_to_look_inside(report, capsys):
    print_report(report)
    text = capsys.readouterr().out
    bleu = report.systems[0].scores["bleu"]
    assert f"{bleu.value:.2f} \u00b1 {bleu.margin:.2f}" in text
    assert bleu.signature in text
    assert "4.50" in text
    assert "runs/a|b: perplexity without 7 pairs that are longer than the positions" in text
    difference = report.systems[1].scores["bleu"].value - bleu.value
    assert f"bad.de: BLEU {difference:+.2f} against runs/a|b, significant (p = " in text
    worst = report.systems[0].worst[0]
    assert shlex.join(["transduce", "inspect", "runs/a|b", worst.source]) in text
    worst = report.systems[1].worst[0]
    assert shlex.join(["transduce", "inspect", "MODEL", worst.source]) in text


def test_a_difference_by_chance_is_called_so(capsys):
    print_report(evaluate({"a": GOOD, "b": GOOD}, REFERENCES, SOURCES, resamples=20, worst=0))
    assert "b: BLEU +0.00 against a, not significant (p = 1, approximate" in (
        capsys.readouterr().out
    )


def test_markdown_tables_survive_any_name(report):
    lines = to_markdown(report).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    header = next(line for line in tables if line.startswith("| score"))
    assert header == r"| score | runs/a\|b | bad.de | signature |"
    columns = [len(line.replace(r"\|", "").split("|")) - 2 for line in tables]
    assert set(columns[: len(report.systems[0].scores) + 3]) == {4}
    worst = report.systems[0].worst[0]
    command = shlex.join(["transduce", "inspect", "runs/a|b", worst.source])
    assert f"- look inside: `{command}`" in lines


def test_the_page_has_all_tables_the_chart_and_the_worst_sentences(report):
    html = to_html(report)
    text = Page(html).text
    for table in tables(report):
        for cell in (table.title, *table.header, *chain(*table.rows), *table.notes):
            assert cell in text
    for system in report.systems:
        assert f"Worst sentences of {system.name}" in text
        for worst in system.worst:
            for part in (worst.source, worst.reference, worst.hypothesis, f"line {worst.line}"):
                assert part in text
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert base64.b64decode(picture).decode() == length_chart(report)


def test_the_page_needs_nothing_from_outside_and_shows_every_text_as_text(report):
    (worst,) = evaluate({"a": [HOSTILE]}, [HOSTILE * 2], [HOSTILE], worst=1).systems[0].worst
    first = dataclasses.replace(report.systems[0], name=HOSTILE, model=HOSTILE, worst=(worst,))
    hostile = dataclasses.replace(
        report, systems=(first, *report.systems[1:]), source=HOSTILE, reference=HOSTILE
    )
    html = to_html(hostile)
    page = Page(html)
    assert page.tags <= OURS | {"img"}
    assert not [name for name in page.attributes if name.startswith("on") or name == "href"]
    assert page.text.count(HOSTILE) >= 6
    assert "default-src 'none'" in html
    assert [source[:5] for source in re.findall(r'src="([^"]+)"', html)] == ["data:"]
    assert not re.search(r"https?:|url\(|@import", html)


def test_the_chart_has_a_bar_for_each_system_and_length(report):
    document = xml.dom.minidom.parseString(length_chart(report))
    bars = [
        bar.firstChild.firstChild.data
        for bar in document.getElementsByTagName("rect")
        if bar.firstChild
    ]
    groups = [group for system in report.systems for group in system.by_length]
    assert sorted(bars) == sorted(f"{group.bleu:.2f}" for group in groups)
