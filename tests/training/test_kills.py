"""A training that is killed at random moments ends like an undisturbed one."""

import random
import shutil
import time

import pytest

from tests.training.ranks import finish, start, train
from tests.training.test_trainer import SMALL, assert_same_run
from transduce.corpora.phrases import write_phrases
from transduce.data.prepare import prepare
from transduce.recipe import load_recipe
from transduce.storage.checkpoint import load_newest
from transduce.training.run_folder import read_finished

SETTINGS = [*SMALL, "training.save_every=3"]


def newest(run):
    """Return the step of the newest checkpoint. None may be damaged: they appear when complete."""
    found = load_newest(run / "checkpoints")
    assert found is None or not found.damaged
    return found.step if found else 0


@pytest.mark.parametrize(
    ("kills", "steps"), [(3, 24), pytest.param(300, 60, marks=pytest.mark.battery)]
)
def test_killed_at_any_moment_a_run_loses_nothing(tmp_path, kills, steps):
    random.seed(kills)
    recipe = write_phrases(tmp_path, "en", "de", 1_500, 1)
    changes = [*SETTINGS, f"training.steps={steps}", f"training.validate_every={steps // 2}"]
    settings = load_recipe(str(recipe), changes)
    prepare(settings, tmp_path, tmp_path / "recipe.store")
    command = ["train", str(recipe), *changes, "--run"]
    train([*command, str(tmp_path / "first")], tmp_path / "log")  # also starts the fork server
    begin = time.monotonic()
    train([*command, str(tmp_path / "whole")], tmp_path / "log")
    seconds = time.monotonic() - begin
    print(f"an undisturbed run takes {seconds:.1f} s", flush=True)
    killed = runs = 0
    while killed < kills:
        run, before, starts = tmp_path / f"run-{runs}", 0, 0
        while not read_finished(run):
            starts += 1
            (process,) = start([*command, str(run)], tmp_path / "log")
            # Longer with every start, so that the test ends on a busy machine too.
            process.join(random.uniform(0, seconds * (0.5 + starts / 10)))
            was_running = process.exitcode is None
            process.kill()
            (status,) = finish([process])
            assert was_running or status == 0, (tmp_path / "log.0").read_text()[-2000:]
            killed += was_running
            assert newest(run) >= before
            before = newest(run)
        assert_same_run(run, tmp_path / "whole")
        runs += 1
        shutil.rmtree(run)
        print(f"{killed} kills of {kills}, {runs} runs ended bit-identical", flush=True)
