"""Curves of any run at any time, within the terminal; a one-line error for other folders."""

import errno
import fcntl
import io
import platform
import subprocess
import sys
import time

import pytest
from rich.console import Console

from transduce.cli.commands import run as command
from transduce.monitoring import watch as watching
from transduce.monitoring.metrics import read_metrics
from transduce.monitoring.terminal import step_figures
from transduce.storage.lock import RUN_LOCK, is_run_locked, lock_run

BRAILLE = {chr(code) for code in range(0x2801, 0x2900)}


def text_of(run, width=80, height=24):
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(watching.frame(run.folder, read_metrics(run.folder), console))
    return console.file.getvalue()


def test_one_frame_shows_where_the_run_is_and_its_curves(run, capsys):
    run.go(last=50)
    capsys.readouterr()
    assert command(["watch", str(run.folder), "--once"]) == 0
    out = capsys.readouterr().out
    assert "run: running, step 50 of 100 (50%)" in out
    for figure in (
        "left",
        "loss 6.500",
        "110 tokens/s",
        "60% of peak",
        "training 3",
        "validation 2.7",
        "BLEU",
    ):
        assert figure in out
    assert BRAILLE & set(out)
    assert "\x1b" not in out


def test_a_run_without_validation_and_without_steps_can_be_watched(run):
    with run.attempt() as progress:
        assert "no step reported yet" in text_of(run)
        run.step(progress, 10)
        assert "no validation yet" in text_of(run)
        run.validate(progress, 10, bleu=float("nan"), chrf=float("nan"), samples=[])
        assert "no validation yet" not in text_of(run)
        assert "nothing translated: validation computes the loss only" in text_of(run)
        run.step(progress, 20, loss=float("nan"), perplexity=float("nan"))
        assert "loss not finite" in text_of(run)


def test_a_finished_run_can_be_watched(run):
    run.go(finish=True)
    assert "run: finished, step 100 of 100 (100%)" in text_of(run)
    assert "left" not in text_of(run)


def test_a_silent_run_is_not_shown_as_running(run, monkeypatch):
    run.go(last=50)
    later = time.time() + 7205
    monkeypatch.setattr(time, "time", lambda: later)
    assert "no sign of life for 2:00:0" in text_of(run)


def test_the_lock_tells_a_killed_run_from_a_running_one(run, monkeypatch):
    with lock_run(run.folder):
        run.go(last=50)
        assert "run: running, step 50" in text_of(run)
        later = time.time() + 100
        with monkeypatch.context() as patch:  # a long validation
            patch.setattr(time, "time", lambda: later)
            assert "run: running, step 50" in text_of(run)
    assert "run: killed, step 50" in text_of(run)
    assert "left" not in text_of(run)
    monkeypatch.setattr(platform, "node", lambda: "another")  # where the lock may be invisible
    assert "run: running, step 50" in text_of(run)


def test_a_file_system_without_locks_does_not_prevent_training(run, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with lock_run(run.folder), lock_run(run.folder):
        assert is_run_locked(run.folder) is None


def test_reading_the_lock_does_not_prevent_training(run, monkeypatch):
    with lock_run(run.folder):
        pass
    with (run.folder / RUN_LOCK).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
        with lock_run(run.folder):
            assert is_run_locked(run.folder)
    assert is_run_locked(run.folder) is False
    assert is_run_locked(run.folder / "nowhere") is None


@pytest.mark.parametrize("make", [False, True])
def test_a_folder_that_is_no_run_is_a_one_line_error(tmp_path, capsys, make):
    path = tmp_path / "here"
    if make:
        path.mkdir()
    assert command(["watch", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "expected the folder of a run, which transduce train writes" in err


def test_figures_that_do_not_fit_are_left_out(run):
    run.go(last=50)
    assert text_of(run, 80).splitlines()[1].split("  ")[-1] == "60% of peak"
    assert text_of(run, 160).splitlines()[1].endswith("data wait 5%  objective 7.000")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_a_frame_fits_the_terminal(run, width, height):
    run.go(last=50)
    with run.attempt(start=50) as progress:
        for number in range(9):
            progress.event(50, "skipped", f"{number} " + "a long message " * 30)
    lines = text_of(run, width, height).splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width


def test_the_live_view_follows_the_run_to_its_end(run, monkeypatch, capsys):
    run.go(last=50)

    def meanwhile(seconds):
        run.go(first=60, start=50, finish=True)

    screen = io.StringIO()
    monkeypatch.setattr(
        watching,
        "Console",
        lambda **_: Console(file=screen, force_terminal=True, width=100, _environ={}),
    )
    monkeypatch.setattr(watching.time, "sleep", meanwhile)
    watching.watch(run.folder)
    assert "step 50 of 100" in screen.getvalue()
    assert "finished, step 100 of 100" in screen.getvalue()


def test_ctrl_c_ends_watching(run, monkeypatch):
    run.go(last=50)

    def enough(seconds):
        raise KeyboardInterrupt

    screen = io.StringIO()
    monkeypatch.setattr(
        watching,
        "Console",
        lambda **_: Console(file=screen, force_terminal=True, width=100, _environ={}),
    )
    monkeypatch.setattr(watching.time, "sleep", enough)
    assert command(["watch", str(run.folder)]) == 0


def test_a_line_goes_from_corner_to_corner():
    lines = watching.plot("x", [("up", [(0, 0.0), (10, 1.0)])], (10, 5), 10)
    rows = [line.plain[watching.MARGIN + 1 :] for line in lines[1:-1]]
    assert [len(row) for row in rows] == [10] * 5
    assert ord(rows[0][-1]) & 0x08  # the upper right dot
    assert ord(rows[-1][0]) & 0x40  # the lower left dot
    assert rows[0][0] == rows[-1][-1] == " "


def test_a_single_point_and_a_level_line_are_drawn():
    for points in ([(10, 3.0)], [(0, 3.0), (10, 3.0)]):
        rows = [line.plain for line in watching.plot("x", [("c", points)], (10, 5), 10)[1:-1]]
        assert BRAILLE & set("".join(rows))


def test_a_terminal_without_unicode_gets_stars():
    lines = watching.plot("x", [("up", [(0, 0.0), (10, 1.0)])], (10, 5), 10, ascii_only=True)
    assert all(line.plain.isascii() for line in lines)
    assert "*" in lines[1].plain


def test_watching_starts_without_torch(run):
    run.go(last=50)
    code = "import sys; from transduce.cli.commands import run; run(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code, "watch", str(run.folder), "--once"],
        check=True,
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
    )


def test_the_objective_is_shown_only_if_it_is_not_the_loss(run):
    record = read_metrics_after_one_step(run)
    assert "objective 7.000" in step_figures(record | {"objective": 7.0})
    same = step_figures(record | {"objective": record["loss"]})
    assert not any(figure.startswith("objective") for figure in same)


def read_metrics_after_one_step(run):
    """Return the record of a step."""
    run.go(last=10)
    (record,) = read_metrics(run.folder).of("step")
    return record
