"""`transduce compare`: one row and one curve for each run."""

import json

import pytest

from tests.monitoring.conftest import Run
from transduce.cli.commands import run as run_command


def test_runs_are_rows_of_a_table_and_curves_of_one_plot(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    for name, last in (("one", 50), ("two", 100)):
        Run(tmp_path / name).go(last=last, finish=True)
    capsys.readouterr()
    assert run_command(["compare", "one", "two"]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if "finished" in line]
    assert [(row[2], row[3], row[4], row[5]) for row in rows] == [
        ("50", "12.5", "50", "6.000"),
        ("100", "25.0", "100", "4.000"),
    ]
    assert "validation BLEU  one 12.5  two 25" in shown
    assert "transduce compare one two --test" in shown


def test_the_best_loss_may_be_that_of_the_average(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    for name, loss in (("better", 5.5), ("worse", 6.5)):
        run = Run(tmp_path / name)
        run.go(last=50)
        with run.attempt(50) as progress:
            run.validate(progress, 50, kind="average", checkpoints=5, loss=loss, bleu=20.0)
            progress.finish(50, "all steps done")
    capsys.readouterr()
    assert run_command(["compare", "better", "worse"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "finished" in line]
    assert [row[3:6] for row in rows] == [
        ["20.0", "average", "5.500"],
        ["20.0", "average", "6.000"],
    ]


def test_long_names_of_runs_are_readable_in_80_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    names = [f"runs/from-english-to-german-{number}" for number in (1, 2)]
    for name in names:
        Run(tmp_path / name).go(last=50, finish=True)
    capsys.readouterr()
    run_command(["compare", *names])
    table, _, _ = capsys.readouterr().out.partition("validation loss")
    assert "\u2026" not in table
    assert "".join(line[:25].strip() for line in table.splitlines()[4:]) == "".join(names)


def test_runs_that_cannot_be_compared_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipes = {
        "one": '[[data.validation]]\nsource = "a.en"\n',
        "two": '[[data.validation]]\nsource = "b.en"\n',
        "three": '[[data.validation]]\nsource = "a.en"\n',
        "old": "",
    }
    for name, recipe in recipes.items():
        Run(tmp_path / name).go(last=50, finish=True)
        metrics = tmp_path / name / "metrics.jsonl"
        first, *others = metrics.read_text().splitlines()
        first = json.dumps({**json.loads(first), "recipe": recipe})
        metrics.write_text("\n".join([first, *others, ""]))
    with (tmp_path / "three" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "validation", "step": null}\n{"kind": "st')

    capsys.readouterr()
    run_command(["compare", "one", "two"])
    assert "the runs name different validation text" in capsys.readouterr().out
    run_command(["compare", "one", "old", "three"])
    shown = capsys.readouterr().out
    assert "different validation text" not in shown
    assert "three/metrics.jsonl: 1 line ignored: damaged, or changed after the run" in shown
    run_command(["watch", "three", "--once"])
    assert "three/metrics.jsonl: 1 line ignored" in capsys.readouterr().out


@pytest.mark.parametrize("count", [1, 9])
def test_too_few_or_too_many_runs_are_refused(count, tmp_path, capsys):
    assert run_command(["compare", *[str(tmp_path)] * count]) == 2
    assert f"{count} runs are given; expected 2 to 6" in capsys.readouterr().err


def test_a_run_is_not_compared_with_itself(tmp_path, capsys):
    Run(tmp_path).go(last=50)
    capsys.readouterr()
    assert run_command(["compare", str(tmp_path), f"{tmp_path}/"]) == 2
    assert f"{tmp_path} is given twice; give each run once" in capsys.readouterr().err
