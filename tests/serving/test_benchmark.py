"""`transduce bench serve`: every load is measured, and requests are really sent."""

import json

import pytest

from transduce.cli.commands import run


def test_every_load_is_measured(bundle, tmp_path, capsys):
    sentences = tmp_path / "some.en"
    sentences.write_text("42 hours\n12 kilometers\n")
    command = ["bench", "serve", str(bundle.path), "--input", str(sentences)]
    assert run([*command, "--rounds", "1", "--clients", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["server"], row["clients"]) for row in rows] == [
        ("one at a time", 1),
        ("one at a time", 2),
        ("batches", 1),
        ("batches", 2),
        ("batches, beside a document", 1),
    ]
    assert all(row["sentences_per_second"] > 0 for row in rows)
    assert all(0 < row["milliseconds"][0] <= row["milliseconds"][1] for row in rows)


@pytest.mark.parametrize("option", ["rounds", "clients", "sentences"])
def test_numbers_that_measure_nothing_are_refused(bundle, option, capsys):
    assert run(["bench", "serve", str(bundle.path), f"--{option}", "0"]) == 2
    assert f"{option} is 0" in capsys.readouterr().err
