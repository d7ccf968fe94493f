"""Summaries of runs: what the browser page shows equals what the run recorded."""

import json
import math

import pytest

from tests.monitoring.conftest import SAMPLES, Run
from transduce.errors import CheckpointError, InputError
from transduce.monitoring import run_summary
from transduce.monitoring.metrics import read_metrics
from transduce.monitoring.run_summary import find_run, summaries, summary
from transduce.storage.lock import lock_run


def test_a_summary_has_the_curves_and_samples_of_the_run(run):
    run.go(finish=True)
    found = summary(run.folder)
    assert (found["name"], found["state"], found["step"], found["steps"]) == (
        "run",
        "finished",
        100,
        100,
    )
    assert [point["step"] for point in found["training"]] == list(range(10, 101, 10))
    assert found["training"][0]["loss"] == pytest.approx(math.log(20), abs=1e-5)
    assert found["training"][0]["tokens_per_second"] == 110.0
    assert found["validation"][1] == {
        "step": 100,
        "loss": pytest.approx(math.log(15), abs=1e-5),
        "bleu": 25.0,
        "chrf": 50.0,
    }
    assert [tuple(sample.values()) for sample in found["samples"]] == SAMPLES
    assert [*found["samples"][0]] == ["source", "reference", "translation"]
    json.dumps(found, allow_nan=False)


def test_losses_are_those_of_the_report(run):
    run.go()
    losses = read_metrics(run.folder).losses()
    found = summary(run.folder)
    for kind in ("training", "validation"):
        points = [(point["step"], point["loss"]) for point in found[kind]]
        assert points == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in losses[kind]]


def test_a_run_trains_while_its_folder_is_locked_and_is_stopped_when_it_was_killed(run):
    with lock_run(run.folder):
        run.go(last=10)
        assert summary(run.folder)["state"] == "training"
    assert summary(run.folder)["state"] == "stopped"


def test_a_run_on_another_machine_is_stopped_after_a_long_silence(run, monkeypatch):
    run.go(last=10)
    assert summary(run.folder)["state"] == "training"  # there is no lock to ask
    later = run_summary.time.time() + run_summary.SILENCE + 1
    monkeypatch.setattr(run_summary.time, "time", lambda: later)
    assert summary(run.folder)["state"] == "stopped"


def test_numbers_that_are_not_finite_are_gaps(run):
    with run.attempt() as progress:
        run.step(progress, 10, perplexity=math.nan)
        run.validate(progress, 10, perplexity=math.inf, bleu=math.nan, samples=[])
    found = summary(run.folder)
    assert found["training"][0]["loss"] is None
    assert (found["validation"][0]["loss"], found["validation"][0]["bleu"]) == (None, None)
    assert found["samples"] == []


def test_a_long_run_keeps_a_readable_number_of_points_with_the_first_and_last(run, monkeypatch):
    monkeypatch.setattr(run_summary, "MOST_POINTS", 4)
    run.go()
    assert [point["step"] for point in summary(run.folder)["training"]] == [10, 40, 70, 100]


def test_the_runs_of_a_folder_are_listed_newest_first(tmp_path):
    for name in ("older", "newer"):
        Run(tmp_path / name).go(finish=True)
    older = tmp_path / "older" / "metrics.jsonl"
    lines = [json.loads(line) for line in older.read_text().splitlines()]
    older.write_text("".join(json.dumps(line | {"time": 1e9}) + "\n" for line in lines))
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / "a-file").write_text("")
    found = summaries(tmp_path)
    assert [run["name"] for run in found] == ["newer", "older"]
    assert found[0] == {"name": "newer", "state": "finished", "step": 100, "steps": 100}
    assert summaries(tmp_path / "missing") == []


def test_a_name_never_leads_out_of_the_folder(tmp_path):
    Run(tmp_path / "inside" / "run").go()
    Run(tmp_path / "outside").go()
    folder = tmp_path / "inside"
    assert find_run(folder, "run") == folder / "run"
    for name in ("../outside", str(tmp_path / "outside"), ".", "", "missing"):
        with pytest.raises(InputError, match="the runs are: run"):
            find_run(folder, name)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no metrics\.jsonl"):
        summary(tmp_path)
