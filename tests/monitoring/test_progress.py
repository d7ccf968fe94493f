"""Progress shows the right figures, restores the terminal, and never ends a training."""

import io
import json
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.monitoring.conftest import Run
from transduce.errors import RankError
from transduce.monitoring import terminal as terminal_module
from transduce.monitoring.hardware import hardware, peak_flops
from transduce.monitoring.metrics import MetricsFile, read_metrics
from transduce.monitoring.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(terminal_module._Console, "file", property(lambda console: screen))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    return screen


def test_figures_of_a_report(run):
    with run.attempt() as progress:
        run.step(progress, 10)
    (record,) = read_metrics(run.folder).of("step")
    assert record["target_tokens_per_second"] == 110
    assert record["data_share"] == 0.05
    assert record["flops"] == 6e6 * 1000  # pairs of one source and one target token
    assert record["peak_share"] == pytest.approx(0.6)
    assert record["seconds_left"] == 90  # 90 steps of 1 s


def test_time_left_follows_the_clock_after_the_first_report(run, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with run.attempt() as progress:
        run.step(progress, 10, step_seconds=600.0)  # includes compilation
        now[0] += 20  # 2 s a step, validation included
        run.step(progress, 20)
    assert [record["seconds_left"] for record in read_metrics(run.folder).of("step")] == [
        5400,
        160,
    ]


def test_without_a_terminal_plain_lines_show_every_figure(run, capsys):
    run.go(last=10)
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    assert "transduce watch" in err
    line = next(line for line in err.splitlines() if line.startswith("step 10/100"))
    for figure in (
        "loss 8.500",
        "perplexity 20",
        "learning rate 0.001",
        "110 tokens/s",
        "60% of peak",
        "data wait 5%",
    ):
        assert figure in line
    assert line.endswith("1:30 left")


def test_plain_lines_come_at_sensible_intervals(run, capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with run.attempt() as progress:
        for step in range(1, 100):
            run.step(progress, step)
            now[0] += 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert [line.split("/")[0] for line in lines] == [f"step {step}" for step in range(1, 100, 10)]


def test_long_lines_are_not_folded_where_there_is_no_terminal(run, capsys):
    with run.attempt() as progress:
        run.validate(progress, 10, samples=[("word " * 100, "a", "b")])
    assert "word " * 99 + "word" in capsys.readouterr().err


def test_the_bar_shows_every_figure_and_leaves_the_terminal_as_it_was(run, terminal):
    with run.attempt() as progress:
        run.step(progress, 10)
        run.validate(progress, 10)
        progress.event(10, "saved", "step-000010")
    text = terminal.getvalue()
    for figure in (
        "step 10/100",
        "10%",
        "left",
        "loss 8.500",
        "110 tokens/s",
        "60% of peak",
        "data wait 5%",
    ):
        assert figure in text
    assert "BLEU 2.5" in text
    assert "Zwei Mann sitzt." in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


@pytest.mark.parametrize("columns", [80, 40])
def test_the_bar_stays_on_its_lines_in_a_narrow_terminal(run, terminal, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with run.attempt() as progress:
        run.step(progress, 10, learning_rate=1.2e-5)
        display = progress._display
        lines = display._console.render_lines(display._frame(), pad=False)
    shown = ["".join(part.text for part in line) for line in lines]
    assert len(shown) == 2
    assert shown[0].startswith("step 10/100 ")
    assert shown[0].endswith(" left")
    assert shown[
        1
    ] == "loss 8.500  perplexity 20" + "  learning rate 1.2e-05  110 tokens/s  60% of peak" * (
        columns > 40
    )


def test_compiling_is_shown_with_its_time_until_the_next_report(run, terminal, monkeypatch):
    now = [2e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    with run.attempt() as progress:
        progress.event(0, "compiling", "the first step")
        now[0] += 42
        progress._display._live.refresh()
        assert "compiling 42 s" in terminal.getvalue()
        run.step(progress, 10)
        assert "compiling took 42 s" in terminal.getvalue()
        shown = len(terminal.getvalue())
        progress._display._live.refresh()
        assert "compiling" not in terminal.getvalue()[shown:]


def test_translations_cannot_move_the_cursor(run, terminal):
    with run.attempt() as progress:
        run.validate(progress, 10, samples=[("a\x1b[2Jb", "\rc", "d\ud800e")])
    assert "\x1b[2J" not in terminal.getvalue()
    assert "a\ufffd[2Jb" in terminal.getvalue()
    assert read_metrics(run.folder).of("validation")[0]["samples"] == [["a\x1b[2Jb", "\rc", "d?e"]]


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), OSError(5, "Input/output error")]
)
def test_a_terminal_that_goes_away_does_not_end_the_training(run, terminal, error):
    with run.attempt() as progress:

        def fail(text):
            raise error

        terminal.write = fail
        for step in (10, 20):
            run.step(progress, step)
            run.validate(progress, step)
        progress.finish(20, "done")
    assert len(read_metrics(run.folder).of("validation")) == 2


def test_a_full_disk_does_not_end_the_training_and_is_reported_once(run, capsys, monkeypatch):
    def fail(self, record):
        raise OSError(28, "No space left on device")

    with run.attempt() as progress:
        with monkeypatch.context() as patch:
            patch.setattr(MetricsFile, "write", fail)
            run.step(progress, 10)
            run.step(progress, 20)
        run.step(progress, 30)
    assert capsys.readouterr().err.count("No space left on device; training continues") == 1
    assert [record["step"] for record in read_metrics(run.folder).of("step")] == [30]


@pytest.mark.parametrize(
    ("error", "message"),
    [(KeyError("lost"), "KeyError: 'lost'"), (RankError("rank 1 is gone"), "rank 1 is gone")],
)
def test_an_error_is_the_last_event_and_only_the_program_prints_it(run, capsys, error, message):
    def train():
        with run.attempt() as progress:
            run.step(progress, 10)
            raise error

    with pytest.raises(type(error)):
        train()
    history = read_metrics(run.folder)
    assert history.status == "stopped"
    assert history.last["message"] == message
    assert "stop" not in capsys.readouterr().err


def test_the_other_ranks_are_silent(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with Progress.silent() as progress:
        run = Run(tmp_path)
        run.step(progress, 10)
        run.validate(progress, 10)
        progress.event(10, "saved", "x")
        progress.finish(10, "done")
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_has_its_report(run, capsys):
    run.go(finish=True)
    assert (run.folder / "report.html").is_file()
    assert f"report: {run.folder / 'report.html'}" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_does_not_end_the_training(run, capsys):
    run.folder.mkdir()
    (run.folder / "report.html").mkdir()
    run.go(finish=True)
    assert "the report could not be written" in capsys.readouterr().err


def test_a_report_costs_little(run):
    with run.attempt() as progress:
        began = time.perf_counter()
        for step in range(1, 501):
            run.step(progress, step)
        assert (time.perf_counter() - began) / 500 < 0.005


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own imports
def test_tensorboard_gets_curves_and_texts_and_hides_what_was_superseded(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = Run(tmp_path, tensorboard=True)
    run.go(last=70)
    run.go(first=60, last=80, start=50)
    board = EventAccumulator(str(tmp_path / "tensorboard"), {"tensors": 0})
    board.Reload()
    assert [event.step for event in board.Scalars("step/loss")] == list(range(10, 90, 10))
    assert [event.value for event in board.Scalars("validation/bleu")] == [12.5]
    (text,) = board.Tensors("samples/1/text_summary")
    assert b"Zwei Mann sitzt." in text.tensor_proto.string_val[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_writes_nothing_to_a_full_disk(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    run = Run(tmp_path, tensorboard=True)
    with run.attempt() as progress:
        (events,) = (tmp_path / "tensorboard").iterdir()
        before = events.stat().st_size
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        run.step(progress, 10)
    assert events.stat().st_size == before


def test_without_tensorboard_everything_else_works(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    Run(tmp_path, tensorboard=False).go()
    output = capsys.readouterr()
    Run(tmp_path, tensorboard=True).go()
    assert capsys.readouterr() == output
    assert len(read_metrics(tmp_path).of("step")) == 10


def test_the_recipe_and_the_machine_are_recorded(run):
    from transduce.presets import TINY
    from transduce.recipe import read_recipe

    recipe = replace(TINY, training=replace(TINY.training, seed=77))
    with run.attempt(recipe=recipe):
        attempt = read_metrics(run.folder).attempt
    path = run.folder / "recipe.toml"
    path.write_text(attempt["recipe"], encoding="utf-8")
    assert read_recipe(path) == recipe
    assert attempt["hardware"] == json.loads(json.dumps(hardware()))
    assert {"cpu", "cores", "memory_gib", "torch"} <= attempt["hardware"].keys()


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA H200", 990e12),
        ("NVIDIA H100 80GB HBM3", 990e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA A10G", None),
        ("AMD EPYC 9454", None),
    ],
)
def test_peaks_are_known_by_the_whole_name(name, bf16):
    assert peak_flops(name) == bf16
    assert bf16 is None or peak_flops(name, "float32") < bf16
