"""`transduce train` on several ranks: the losses of one rank, and no step is lost."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.ranks import finish, free_port, read_logs, start, train
from tests.training.test_trainer import SMALL, assert_same_run, losses, reached
from transduce.corpora.phrases import write_phrases
from transduce.data.prepare import prepare
from transduce.errors import DataError
from transduce.monitoring.metrics import read_metrics
from transduce.recipe import load_recipe
from transduce.storage.checkpoint import load_newest
from transduce.training import resume, run_folder, step, validation
from transduce.training import train as train_module
from transduce.training.step import Learner
from transduce.training.trainer import Trainer
from transduce.translation.translator import Translator

pytestmark = pytest.mark.ranks

# No dropout, which differs between ranks, and no rounding to bf16. Micro-batches, recomputed layers and averaged weights too.
SETTINGS = [
    *SMALL, "model.p_drop=0.0", "training.precision=float32", "training.micro_batches=2", "training.recompute=true",
    "training.ema=0.9",
]  # fmt: skip


class Runs:
    """Runs of one recipe; undisturbed runs are trained once and shared."""

    def __init__(self, folder):
        self.folder = folder
        self.recipe = write_phrases(folder, "en", "de", 1_500, 1)
        prepare(load_recipe(str(self.recipe), SETTINGS), folder, folder / "recipe.store")
        self.logs = count()

    def command(self, run, sharding="ddp", *more):
        return [
            "train",
            str(self.recipe),
            *SETTINGS,
            f"training.sharding={sharding}",
            *more,
            "--run",
            str(run),
        ]

    def train(self, run, size, sharding="ddp", *more, change=None, status=0, seconds=60):
        """Train, and return the output of each rank."""
        log = f"{self.folder}/log-{next(self.logs)}"
        return train(self.command(run, sharding, *more), log, size, change, status, seconds)

    def undisturbed(self, size, sharding="ddp", *more):
        run = self.folder / "-".join([sharding, str(size), *more])
        if not run.exists():
            self.train(run, size, sharding, *more)
        return run

    def torchrun(self, run, *options, ranks=2):
        """Start the ranks as a user does."""
        launcher = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *options,
            "--nproc-per-node",
            str(ranks),
        ]
        command = [
            *launcher,
            "--max-restarts",
            "3",
            "-m",
            "--",
            "transduce",
            *self.command(run, "ddp", *LONGER),
        ]
        with open(f"{self.folder}/log-{next(self.logs)}", "w+", encoding="utf-8") as log:
            # The store: docs/scaling.md. The same bits need the same number of threads.
            environment = {
                **os.environ,
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                "OMP_NUM_THREADS": "1",
            }
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("ranks"))


def signal_at(number, by, kind, rank):
    """Send a signal to one rank during a step."""
    take = Trainer._step

    def stopped(self, micro_batches, target_tokens, at):
        if at == number and self.world.rank == by:
            signal.raise_signal(kind)
        return take(self, micro_batches, target_tokens, at)

    Trainer._step = stopped


def poison(numbers, rank):
    """Make the loss of rank 1 NaN in some steps; every rank prints its weights after each step."""
    compute, take, save = step.projected_loss, Trainer._step, Trainer._save
    now = 0

    def poisoned(*args):
        factor = torch.nan if rank == 1 and now in numbers else 1.0
        return compute(*args) * factor

    def counted(self, micro_batches, target_tokens, at):
        nonlocal now
        now = at
        return take(self, micro_batches, target_tokens, at)

    def tell(self, selector, saver):
        weights = self.learning.collect()["model"].values()
        print("weights", self.state.step, sum(weight.double().sum().item() for weight in weights))
        save(self, selector, saver)

    step.projected_loss, Trainer._step, Trainer._save = poisoned, counted, tell


def no_room(*_):
    raise torch.OutOfMemoryError("no room")


def run_out(passes, rank):
    """Run out of memory: {(rank, number of the micro-batch): "forward" or "backward"}."""
    compute, numbers = Learner._sums, count(1)

    def cramped(self, source, target):
        where = passes.get((rank, next(numbers)))
        if where == "forward":
            no_room()
        # When its gradient arrives, other weights already have theirs.
        early = self.model.encoder[0].feed_forward.w_1.weight
        early._backward_hooks = None
        if where == "backward":
            early.register_hook(no_room)
        return compute(self, source, target)

    Learner._sums = cramped


def run_out_in_the_update(rank):
    """Run out of memory on rank 1 after the gradients were exchanged."""
    if rank == 1:
        step.update = no_room


def tell_micro_batches(rank):
    """Print the number of micro-batches of each step."""
    take = Trainer._step

    def telling(self, micro_batches, *rest):
        print("micro-batches:", len(micro_batches))
        return take(self, micro_batches, *rest)

    Trainer._step = telling


def signal_in_validation(work, by, rank):
    """Send a signal to one rank while it translates or computes a loss; print the amount of work."""
    owner, name = (Translator, "translate") if work == "sentences" else (validation, "_loss")
    compute = getattr(owner, name)

    def stopped(self, items, *rest):
        print("begins:", len(items), work)
        if rank == by:
            signal.raise_signal(signal.SIGTERM)
            print("went on")
        return compute(self, items, *rest)

    setattr(owner, name, stopped)


def hide(rank):
    """Make rank 1 behave as on a machine that does not share the folder of the run."""
    if rank == 1:
        resume.load_newest = run_folder.read_finished = lambda *_: None


def assert_close_run(run, other):
    """Compare two runs up to the rounding of float32."""
    assert dict(losses(run)) == pytest.approx(dict(losses(other)), abs=1e-5)
    assert dict(losses(run, "validation")) == pytest.approx(
        dict(losses(other, "validation")), abs=1e-5
    )
    for group in ("model", "ema"):
        mine, theirs = (load_newest(path / "checkpoints").tensors(group) for path in (run, other))
        for name, weight in theirs.items():
            assert torch.allclose(mine[name], weight, atol=1e-5), name


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_two_ranks_report_the_losses_of_one_and_only_rank_0_prints(runs, sharding):
    run = runs.folder / f"{sharding}-2"
    first, second = runs.train(run, 2, sharding)
    assert "12 steps done" in first
    assert second == ""
    assert_close_run(run, runs.undisturbed(1))


def test_a_finished_run_is_unchanged_and_only_rank_0_says_so(runs):
    first, second = runs.train(runs.undisturbed(2), 2)
    assert "is finished" in first
    assert second == ""


@pytest.mark.parametrize(
    ("sharding", "sizes"),
    [("ddp", (1, 4)), ("fsdp", (1,)), pytest.param("fsdp", (4,), marks=pytest.mark.slow)],
)
def test_a_stopped_run_resumes_with_another_number_of_ranks(runs, tmp_path, sharding, sizes):
    first, second = runs.train(
        tmp_path / "2", 2, sharding, change=partial(signal_at, 5, 1, signal.SIGTERM)
    )
    assert "a signal to another rank: the run is saved" in first
    assert second == ""
    assert load_newest(tmp_path / "2/checkpoints").step == 5
    for size in sizes:
        shutil.copytree(tmp_path / "2", tmp_path / f"{size}")
        assert "resumed: after step 5" in runs.train(tmp_path / f"{size}", size, sharding)[0]
        assert_close_run(tmp_path / f"{size}", runs.undisturbed(1))
    runs.train(tmp_path / "2", 2, sharding)
    assert_same_run(tmp_path / "2", runs.undisturbed(2, sharding))


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_four_resumed_ranks_are_bit_identical(runs, tmp_path, sharding):
    """With more than two, a sum depends on its order."""
    runs.train(tmp_path / "run", 4, sharding, change=partial(signal_at, 5, 3, signal.SIGTERM))
    runs.train(tmp_path / "run", 4, sharding)
    assert_same_run(tmp_path / "run", runs.undisturbed(4, sharding))


@pytest.mark.parametrize("sharding", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow)])
def test_a_run_of_one_rank_resumes_with_two(runs, tmp_path, sharding):
    runs.train(tmp_path / "run", 1, change=partial(signal_at, 5, 0, signal.SIGTERM), status=143)
    runs.train(tmp_path / "run", 2, sharding)
    assert_close_run(tmp_path / "run", runs.undisturbed(1))


def test_a_signal_interrupts_validation_on_all_ranks_and_it_is_repeated(runs, tmp_path):
    many = "training.validation_sentences=40"  # two portions
    for work, amount, by in [("sentences", 16, 1), ("batches", 1, 0)]:
        outputs = runs.train(
            tmp_path / "run", 2, "ddp", many, change=partial(signal_in_validation, work, by)
        )
        assert "saved; run the same command again to resume" in outputs[0]
        for text in outputs:
            assert text.count("begins:") == text.count(f"begins: {amount} {work}") == 1
        assert "went on" not in outputs[by]
        assert load_newest(tmp_path / "run/checkpoints").step == 6
    runs.train(tmp_path / "run", 2, "ddp", many)
    whole = runs.undisturbed(2, "ddp", many)
    assert_same_run(tmp_path / "run", whole)
    assert losses(tmp_path / "run", "validation") == losses(whole, "validation")


def test_when_one_rank_runs_out_of_memory_all_halve_their_micro_batches(runs, tmp_path):
    """Rank 1 in the first of two micro-batches of step 3, then rank 0 in the last of four of step 4."""
    passes = {(1, 5): "forward", (0, 14): "backward"}
    first, second = runs.train(tmp_path / "run", 2, change=partial(run_out, passes))
    for parts in (4, 8):
        assert (
            f"out-of-memory: each step now uses {parts} micro-batches, with the same gradient"
            in first
        )
    assert second == ""
    assert_close_run(tmp_path / "run", runs.undisturbed(2))


@pytest.mark.parametrize(
    ("sharding", "change"),
    [("fsdp", partial(run_out, {(1, 5): "forward"})), ("ddp", run_out_in_the_update)],
)
def test_a_rank_that_runs_out_of_memory_where_others_wait_for_it_leaves_a_note(
    runs, tmp_path, sharding, change
):
    log = tmp_path / "log"
    assert finish(start(runs.command(tmp_path / "run", sharding), log, 2, change), 30) == [2, 2]
    assert "rank 0 lost the connection to another rank" in read_logs(log, 2)[0]
    assert (
        "rank 1 ran out of memory with 2 micro-batches per step; restart the run (torchrun"
        in read_logs(log, 2)[1]
    )
    first, _ = runs.train(tmp_path / "run", 2, sharding, change=tell_micro_batches)
    assert "micro-batches: 4" in first
    assert "micro-batches: 2" not in first
    assert_close_run(tmp_path / "run", runs.undisturbed(1))


def refuse_store(rank):
    """Let every rank meet the same error, rank 0 last."""

    def refuse(*_):
        time.sleep(0.2 if rank == 0 else 0)
        raise DataError("the store is damaged")

    train_module.Store = refuse


@pytest.mark.parametrize(
    ("change", "message"),
    [(None, "was started with model.p_drop = 0.0"), (refuse_store, "the store is damaged")],
)
def test_an_error_that_ends_all_ranks_is_said_once(runs, tmp_path, change, message):
    shutil.copytree(runs.undisturbed(2), tmp_path / "run")
    options = [] if change else ["model.p_drop=0.3"]
    logs = runs.train(tmp_path / "run", 3, "ddp", *options, change=change, status=2)
    (line,) = [line for line in "".join(logs).splitlines() if line.startswith("transduce:")]
    assert message in line


def test_ranks_that_see_different_folders_are_refused(runs, tmp_path):
    shutil.copytree(runs.undisturbed(2), tmp_path / "run")
    log = tmp_path / "log"
    assert finish(start(runs.command(tmp_path / "run"), log, 2, hide)) == [2, 2]
    assert "rank 1 finds step 0 in" in read_logs(log, 2)[1]
    assert (
        read_logs(log, 2)[1]
        .strip()
        .endswith("but other ranks find another step; all machines must share this folder")
    )


LONGER = "training.steps=40", "training.validate_every=20"  # long enough to be killed on the way


def meet(process, run, number):
    """Wait for a step; return the process ids of the launcher's ranks."""
    deadline = time.monotonic() + 60
    while process.poll() is None and reached(run) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return sorted(map(int, children))


def test_a_killed_rank_ends_the_others_and_the_run_can_resume(runs, tmp_path):
    log = tmp_path / "log"
    kill = partial(signal_at, 7, 1, signal.SIGKILL)
    assert finish(start(runs.command(tmp_path / "run"), log, 2, kill), 30) == [2, -signal.SIGKILL]
    line = (
        "rank 0 lost the connection to another rank, which ended first; look for the error message "
        "of that rank"
    )
    assert read_logs(log, 2)[0].endswith(f"transduce: {line}\n")
    assert "gloo" not in read_logs(log, 2)[0]
    assert read_metrics(tmp_path / "run").last["message"] == line
    runs.train(tmp_path / "run", 2)
    assert_same_run(tmp_path / "run", runs.undisturbed(2))


@pytest.mark.slow
def test_torchrun_restarts_a_killed_rank_and_stops_on_a_signal(runs, tmp_path):
    run = tmp_path / "run"
    process = runs.torchrun(run, "--master-port", str(free_port()))
    os.kill(meet(process, run, 6)[1], signal.SIGKILL)
    meet(process, run, 12)
    signalled_at = time.monotonic()
    process.terminate()
    process.wait(timeout=60)
    assert time.monotonic() - signalled_at < 10
    stopped = load_newest(run / "checkpoints").step
    assert reached(run) == stopped
    assert 12 <= stopped < 40
    runs.train(run, 2, "ddp", *LONGER)
    assert_same_run(run, runs.undisturbed(2, "ddp", *LONGER))


@pytest.mark.slow
def test_two_machines_restart_together(runs, tmp_path):
    """Two launchers with a rank each stand in for two machines."""
    run, endpoint = tmp_path / "run", f"localhost:{free_port()}"
    options = [
        "--nnodes",
        "2",
        "--rdzv-id",
        "two",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        endpoint,
    ]
    launchers = [runs.torchrun(run, *options, ranks=1) for _ in range(2)]
    os.kill(meet(launchers[1], run, 6)[0], signal.SIGKILL)
    assert [launcher.wait(timeout=120) for launcher in launchers] == [0, 0]
    assert_same_run(run, runs.undisturbed(2, "ddp", *LONGER))


@pytest.mark.battery
def test_30_killed_ranks_come_back_and_the_runs_end_as_if_nothing_happened(runs, tmp_path):
    random.seed(1)
    for number in range(10):
        run = tmp_path / str(number)
        process = runs.torchrun(
            run, *(["--standalone"] if number % 2 else ["--master-port", str(free_port())])
        )
        for attempt in range(3):
            ranks = meet(process, run, random.randrange(1, 10) + 11 * attempt)
            os.kill(random.choice(ranks), signal.SIGKILL)
        assert process.wait(timeout=120) == 0
        assert_same_run(run, runs.undisturbed(2, "ddp", *LONGER))
        print(
            f"{3 * (number + 1)} kills of one of two ranks, {number + 1} runs ended bit-identical",
            flush=True,
        )


def saved(run, number):
    """Return the weights and the optimizer state after a step."""
    place = run / f"checkpoints/step-{number:06d}"
    return load_file(place / "model.safetensors") | load_file(place / "optimiser.safetensors")


EVERY = ["training.save_every=1", "training.keep_checkpoints=1000", "training.validate_every=1000"]


@pytest.mark.parametrize(
    ("sharding", "steps"),
    [
        ("ddp", 6),
        pytest.param("fsdp", 6, marks=pytest.mark.slow),
        pytest.param("ddp", 200, marks=pytest.mark.battery),
        pytest.param("fsdp", 200, marks=pytest.mark.battery),
    ],
)
def test_a_gradient_that_is_not_finite_on_one_rank_is_skipped_on_all(
    runs, tmp_path, sharding, steps
):
    poisoned = {4} if steps == 6 else {17, 68, 119, 170}  # one in fifty
    outputs = runs.train(
        tmp_path / "run",
        2,
        sharding,
        *EVERY,
        f"training.steps={steps}",
        change=partial(poison, poisoned),
        seconds=60 if steps == 6 else 600,  # each of many steps saves a checkpoint
    )
    kept = [[line for line in text.splitlines() if line.startswith("weights")] for text in outputs]
    assert kept[0] == kept[1]
    assert len(kept[0]) == steps
    for number in range(2, steps + 1):
        before, after = (saved(tmp_path / "run", at) for at in (number - 1, number))
        assert all(torch.equal(after[name], value) for name, value in before.items()) == (
            number in poisoned
        )
    assert load_newest(tmp_path / "run/checkpoints").progress["skipped"] == len(poisoned)
