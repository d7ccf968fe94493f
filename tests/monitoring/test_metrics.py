"""metrics.jsonl: every line is complete, and a resumed run reads as if it had never stopped."""

import json
import math
import subprocess
import sys
from types import SimpleNamespace

import pytest

from transduce.errors import CheckpointError
from transduce.monitoring import metrics
from transduce.monitoring.metrics import read_metrics
from transduce.monitoring.report import write_report
from transduce.monitoring.watch import watch


def lines(run):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return [
        json.loads(line, parse_constant=refuse) for line in run.metrics.read_text().splitlines()
    ]


def test_every_report_is_a_line_on_disk_before_the_run_ends(run):
    with run.attempt() as progress:
        run.step(progress, 10)
        run.validate(progress, 10)
        progress.event(10, "saved", "step-000010")
        assert [(line["kind"], line["step"]) for line in lines(run)] == [
            ("start", 0),
            ("step", 10),
            ("validation", 10),
            ("event", 10),
        ]
        assert all(line["time"] > 1.7e9 for line in lines(run))


def test_what_is_not_finite_becomes_null(run):
    with run.attempt() as progress:
        run.step(
            progress, 10, loss=float("nan"), perplexity=float("inf"), gradient_norm=float("-inf")
        )
        run.validate(progress, 10, bleu=float("nan"))
    step, validation = lines(run)[1:]
    assert (step["loss"], step["perplexity"], step["gradient_norm"], validation["bleu"]) == (
        None,
    ) * 4
    assert read_metrics(run.folder).curve("step", "loss") == []


def test_a_resumed_run_reads_as_if_it_had_never_stopped(tmp_path):
    from tests.monitoring.conftest import Run

    straight, broken = Run(tmp_path / "straight"), Run(tmp_path / "broken")
    straight.go()
    broken.go(last=70)
    before = broken.metrics.read_bytes()
    broken.go(first=40, last=60, start=30)
    broken.go(first=60, start=50, finish=False)
    assert broken.metrics.read_bytes().startswith(before)  # appended to, never rewritten
    for kind, name in (("step", "loss"), ("validation", "bleu")):
        curve = read_metrics(straight.folder).curve(kind, name)
        assert curve
        assert read_metrics(broken.folder).curve(kind, name) == curve
    assert read_metrics(broken.folder).flops == pytest.approx(read_metrics(straight.folder).flops)


def test_lines_after_a_resume_point_are_dropped_before_they_are_repeated(run):
    run.go(last=70)
    with run.attempt(start=30):
        history = read_metrics(run.folder)
    assert [step for step, _ in history.curve("step", "loss")] == [10, 20, 30]
    assert history.step == 30
    assert history.of("validation") == []


def test_a_run_that_begins_again_forgets_everything(run):
    with run.attempt() as progress:
        progress.event(0, "compiling", "the first time")
        run.step(progress, 10)
    with run.attempt() as progress:
        progress.event(0, "compiling", "again")
    assert [record["kind"] for record in read_metrics(run.folder).records] == ["start", "event"]


def test_cost_counts_steps_whose_line_was_superseded(run):
    run.go(last=40)
    run.go(first=45, last=45, start=35)  # steps 31 to 35 are in no valid line
    per_step = 6e6 * 1000 / 10
    history = read_metrics(run.folder)
    assert [step for step, _ in history.curve("step", "loss")] == [10, 20, 30, 45]
    assert history.flops == pytest.approx(45 * per_step)


def test_a_line_cut_short_by_a_crash_is_cut_off_and_the_others_are_kept(run):
    run.go(last=20)
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole + b'{"kind": "step", "step": 3')
    assert len(read_metrics(run.folder).of("step")) == 2
    run.go(first=30, last=30, start=20)
    assert run.metrics.read_bytes().startswith(whole + b'{"kind": "resume"')
    assert [line["step"] for line in lines(run) if line["kind"] == "step"] == [10, 20, 30]


def test_damaged_lines_are_skipped(run):
    run.go(last=20)
    with run.metrics.open("ab") as file:
        file.write(b'\xff\xfe\n[1]\n{"kind": "step"}\nnull\n')
    assert len(read_metrics(run.folder).of("step")) == 2


def test_a_line_that_does_not_fit_the_disk_is_not_written_at_all(tmp_path):
    code = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from transduce.monitoring.metrics import MetricsFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (250, 250))\n"
        "file, failures = MetricsFile(Path(sys.argv[1])), 0\n"
        "for step in (1, 2, 3):\n"
        "    try:\n"
        "        file.write({'kind': 'step', 'step': step, 'time': 0, 'text': 'x' * 60})\n"
        "    except OSError:\n"
        "        failures += 1\n"
        "print(failures)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
    written = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line)["step"] for line in written.splitlines()] == [1, 2]
    assert written.endswith("\n")


def test_tensorboard_leaves_a_full_disk_alone(tmp_path, monkeypatch):
    """Its writer thread would end with a traceback."""
    record = {"kind": "step", "step": 1, "time": 0.0, "loss": 2.0}
    sink = metrics.TensorBoardSink(tmp_path, 0)
    sink.write(record)
    (file,) = (tmp_path / "tensorboard").iterdir()
    size = file.stat().st_size

    monkeypatch.setattr(metrics.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    sink.write(record | {"step": 2})
    sink.close()
    assert file.stat().st_size == size
    with pytest.raises(OSError, match="No space left on device"):
        metrics.TensorBoardSink(tmp_path, 2)


def test_status_is_running_stopped_or_finished(run):
    run.go(last=20)
    assert read_metrics(run.folder).status == "running"
    with run.attempt(start=20) as progress:
        progress.event(20, "stop", "SIGTERM")
        assert read_metrics(run.folder).status == "stopped"
    run.go(first=30, start=20, finish=True)
    assert read_metrics(run.folder).status == "finished"
    run.go(first=110, last=110, start=100)  # a longer run goes on
    assert read_metrics(run.folder).status == "running"


def test_of_validations_with_equal_bleu_the_one_with_the_lowest_loss_is_the_best(run):
    losses = [(10, math.nan, 0.0), (20, 5.0, 0.0), (30, 6.0, 0.0), (40, 1.0, math.nan)]
    with run.attempt() as progress:
        for step, loss, bleu in losses:
            run.validate(progress, step, loss=loss, bleu=bleu)
        run.validate(progress, 40, kind="average", checkpoints=5, loss=4.0, bleu=0.0)
    assert read_metrics(run.folder).best["kind"] == "average"
    with run.attempt(40) as progress:
        run.validate(progress, 50, loss=7.0, bleu=0.1)
    assert read_metrics(run.folder).best["step"] == 50


def test_several_events_of_one_step_are_all_kept(run):
    with run.attempt() as progress:
        progress.event(5, "out-of-memory", "4 rows")
        progress.event(5, "out-of-memory", "2 rows")
        progress.event(5, "saved", "step-000005")
    assert len(read_metrics(run.folder).of("event")) == 3


@pytest.mark.parametrize(
    ("make", "message"), [(None, "is not a folder"), ("folder", "has no metrics.jsonl")]
)
def test_what_is_not_a_run_is_refused(tmp_path, make, message):
    path = tmp_path / "here"
    if make:
        path.mkdir()
    with pytest.raises(CheckpointError, match=message):
        read_metrics(path)


def test_a_run_without_a_record_is_refused(run):
    run.folder.mkdir()
    run.metrics.touch()
    with pytest.raises(CheckpointError, match="has no record yet"):
        read_metrics(run.folder)
    run.metrics.write_text('{"kind": []}\n[1]\n')
    with pytest.raises(CheckpointError, match="has no record of a training run; restore the file"):
        read_metrics(run.folder)


def test_the_loss_of_an_older_version_becomes_the_objective(run):
    """It was the smoothed loss of a step, beside the perplexity without smoothing."""
    run.go(last=10)
    start, step = lines(run)
    del step["objective"]
    run.metrics.write_text(f"{json.dumps(start)}\n{json.dumps(step)}\n")
    (read,) = read_metrics(run.folder).of("step")
    assert (read["loss"], read["objective"]) == (pytest.approx(math.log(20)), step["loss"])


FIELDS = {
    "step": ["step", "time", "kind", "loss", "perplexity", "steps", "learning_rate", "flops"],
    "validation": ["loss", "perplexity", "bleu", "chrf", "samples"],
    "event": ["event", "message", "step"],
    "start": ["total_steps", "recipe", "hardware", "run"],
}
VALUES = [None, "text", [1], {"a": 1}, -1, 0, 10**400, True, "absent"]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:9])
def test_a_run_with_an_edited_record_can_be_watched(run, value, capsys):
    with run.attempt() as progress:
        run.step(progress, 10)
        run.validate(progress, 10)
        progress.event(10, "advice", "try this")
        run.step(progress, 20)
    records = lines(run)
    for kind, names in FIELDS.items():
        for name in names:
            edited = ["[" * 100_000]  # too deep for JSON
            for record in records:
                changed = dict(record)
                if record["kind"] == kind and record["step"] <= 10:
                    changed[name] = value
                    if value == "absent":
                        del changed[name]
                edited.append(json.dumps(changed))
            run.metrics.write_text("\n".join(edited) + "\n")
            watch(run.folder, once=True)
    write_report(run.folder)
    assert "Traceback" not in capsys.readouterr().out
