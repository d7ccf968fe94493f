"""A save that is killed, damaged or without space never harms another checkpoint."""

import os
import random
import shutil
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from tests.fault_injection import FillingDisk, killed_at_each_point, listing, rewrite_manifest
from transduce.errors import CheckpointError
from transduce.storage import background_saver, checkpoint, sealed_folder, tensors
from transduce.storage.background_saver import BackgroundSaver
from transduce.storage.checkpoint import (
    CHECKPOINT,
    average,
    best_checkpoints,
    checkpoints,
    keep_last,
    load_newest,
    save_checkpoint,
)

forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def state(step, size=50):
    """Return a training state whose values depend on the step."""
    torch.manual_seed(step)
    weights = {"embedding.weight": torch.randn(size, 4), "norm.bias": torch.randn(size)}
    adam = {f"{name}.first_moment": torch.randn_like(weight) for name, weight in weights.items()}
    return {"model": weights, "optimizer": adam, "random": {"cpu": torch.get_rng_state()}}


def progress(step):
    return {
        "epoch": step // 10,
        "position": 7 * step,
        "best": -float("inf"),
        "schedule": {"scale": 0.1 + step},
    }


def save(run, step, **kwargs):
    return save_checkpoint(run, step, state(step, **kwargs), progress(step))


def assert_holds(found, step, **kwargs):
    """Assert that the checkpoint is that of a step, bit for bit."""
    assert found is not None
    assert found.step == step
    assert found.progress == {**progress(step), "step": step}
    for group, wanted in state(step, **kwargs).items():
        loaded = found.tensors(group)
        assert loaded.keys() == wanted.keys()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in wanted.items())


@pytest.fixture
def run(tmp_path):
    """A run with the steps 1 and 2."""
    save(tmp_path / "run", 1)
    save(tmp_path / "run", 2)
    return tmp_path / "run"


def test_a_state_comes_back_bit_for_bit(run):
    found = load_newest(run)
    assert_holds(found, 2)
    assert found.path == run / "step-000002"
    assert found.damaged == ()
    torch.set_rng_state(found.tensors("random")["cpu"])
    resumed = torch.randn(5)
    state(2)
    assert torch.equal(resumed, torch.randn(5))


def test_a_new_run_has_no_checkpoint(tmp_path):
    assert load_newest(tmp_path / "absent") is None


def test_steps_are_ordered_as_numbers(run):
    for step in (1_000_000, 999_999):
        save(run, step)
    (run / "step-notes").mkdir()
    assert [path.name for path in checkpoints(run)] == [
        "step-000001",
        "step-000002",
        "step-999999",
        "step-1000000",
    ]
    assert load_newest(run).step == 1_000_000


def test_a_group_that_is_absent_is_named(run):
    (run / "step-000002" / "ema.safetensors").write_bytes(b"not in the manifest")
    with pytest.raises(
        CheckpointError, match=r"step-000002 has no tensors .ema.; it has model, optimizer, random"
    ):
        load_newest(run).tensors("ema")


def test_a_step_is_saved_once_and_again_only_if_damaged(run):
    save_checkpoint(run, 2, state(99), progress(99))
    assert_holds(load_newest(run), 2)
    (run / "step-000002" / "model.safetensors").write_bytes(b"")
    save(run, 2)
    assert_holds(load_newest(run), 2)
    assert listing(run) == ["step-000001", "step-000002"]


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.battery)])
def test_a_flipped_bit_is_noticed_and_the_previous_checkpoint_used(run, count):
    random.seed(count)
    files = sorted((run / "step-000002").iterdir())
    for _ in range(count):
        file = random.choice(files)
        whole = file.read_bytes()
        flipped = bytearray(whole)
        flipped[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        file.write_bytes(flipped)
        found = load_newest(run)
        assert_holds(found, 1)
        assert len(found.damaged) == 1
        assert str(file) in found.damaged[0]
        assert not found.damaged[0].endswith(CHECKPOINT.remedy)  # nothing is left to do
        file.write_bytes(whole)
    assert_holds(load_newest(run), 2)


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.battery)])
def test_a_truncated_file_is_noticed_and_the_previous_checkpoint_used(run, count):
    random.seed(count)
    files = sorted((run / "step-000002").iterdir())
    for _ in range(count):
        file = random.choice(files)
        whole = file.read_bytes()
        file.write_bytes(whole[: random.randrange(len(whole))])
        found = load_newest(run)
        assert_holds(found, 1)
        assert str(file) in found.damaged[0]
        file.write_bytes(whole)
    assert_holds(load_newest(run), 2)


def test_a_run_with_only_damaged_checkpoints_does_not_start_afresh(run):
    for path in checkpoints(run):
        (path / "model.safetensors").unlink()
    with pytest.raises(
        CheckpointError,
        match=r"no checkpoint in .* can be used \(the newest: .*step-000002/model.saf",
    ) as error:
        load_newest(run)
    assert str(error.value).endswith(
        "is missing); restore one from a backup, or choose another folder for a new run"
    )


def test_a_checkpoint_of_a_later_transduce_is_neither_skipped_nor_replaced(run):
    rewrite_manifest(run / "step-000002", format=2)
    with pytest.raises(
        CheckpointError, match=r"step-000002 has checkpoint format 2, .*upgrade transduce"
    ):
        load_newest(run)
    with pytest.raises(CheckpointError, match="exists already"):
        save(run, 2)


@forks
@pytest.mark.parametrize(
    ("stride", "times"), [(13, 1), pytest.param(1, 20, marks=pytest.mark.battery)]
)
def test_killed_at_any_point_of_a_save_a_checkpoint_is_there(run, monkeypatch, stride, times):
    """The process is killed at every line of a save, including the removal of old checkpoints."""
    # Slow, and without meaning for a killed process.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(tensors, "CHUNK", 2048)
    fresh = run.with_name("fresh")
    shutil.copytree(run, fresh)
    points = 0

    def work():
        save(run, 3)
        keep_last(run, 2)

    for time_ in range(times):
        steps_found = set()
        for _ in killed_at_each_point(
            work, [checkpoint, sealed_folder, shutil], stride, first=1 + time_ % stride
        ):
            found = load_newest(run)
            assert_holds(found, found.step)
            # Nothing half written, nothing half removed.
            assert all(map(checkpoint.verifies, checkpoints(run)))
            steps_found.add(found.step)
            save(run, 4)
            keep_last(run, 2)
            assert listing(run) == [f"step-{found.step:06d}", "step-000004"]
            shutil.rmtree(run)
            shutil.copytree(fresh, run)
            points += 1
        assert steps_found == {2, 3}
        assert_holds(load_newest(run), 3)
        shutil.rmtree(run)
        shutil.copytree(fresh, run)
    print(f"{points} kills")
    assert points > 10


def assert_refused_for_room(run, caught, room):
    message = str(caught.value)
    needed = sealed_folder.SPARE + sum(map(tensors.file_size, state(3, size=20_000).values()))
    assert f"{run / 'step-000003'} does not fit on the disk" in message
    # progress.json.
    assert int(message.partition("it needs ")[2].split()[0].replace(",", "")) - needed in range(
        1000
    )
    assert "bytes and " in message
    assert message.endswith("are free; make room, what was saved before is intact"), room
    assert listing(run) == ["step-000001", "step-000002"]
    assert_holds(load_newest(run), 2)


@pytest.mark.parametrize("every", [25, pytest.param(5, marks=pytest.mark.battery)])
def test_a_disk_that_fills_up_during_a_save_costs_only_that_save(run, monkeypatch, every):
    monkeypatch.setattr(tensors, "CHUNK", 4096)
    size = sum(map(tensors.file_size, state(3, size=20_000).values()))
    for percent in range(0, 100, every):
        with monkeypatch.context() as patch:
            patch.setattr(sealed_folder, "open", FillingDisk(size * percent // 100), raising=False)
            with pytest.raises(CheckpointError) as caught:
                save(run, 3, size=20_000)
        assert_refused_for_room(run, caught, percent)
    save(run, 3, size=20_000)


@pytest.mark.battery
@pytest.mark.parametrize("foreseen", [True, False])
def test_a_real_full_disk_costs_only_that_save(tmp_path, monkeypatch, foreseen):
    """Fill a small file system in memory at each 5 % of a save: noticed before, and during writing."""
    size = sum(map(tensors.file_size, state(3, size=20_000).values()))
    real = shutil.disk_usage
    if subprocess.run(
        ["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting a file system needs root")
    try:
        save(tmp_path, 1)
        save(tmp_path, 2)
        used = real(tmp_path).used
        for percent in range(0, 100, 5):
            room = used + size * percent // 100
            subprocess.run(["mount", "-o", f"remount,size={room}", str(tmp_path)], check=True)
            looks = iter([] if foreseen else [SimpleNamespace(free=1 << 40)])
            with monkeypatch.context() as patch:
                patch.setattr(
                    shutil,
                    "disk_usage",
                    lambda place, looks=looks: next(looks, None) or real(place),
                )
                with pytest.raises(CheckpointError) as caught:
                    save(tmp_path, 3, size=20_000)
            assert_refused_for_room(tmp_path, caught, percent)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_old_checkpoints_are_removed_but_never_the_last_good_one(run):
    for step in (3, 4, 5):
        save(run, step)
    keep_last(run, 2, protect=[1])
    assert listing(run) == ["step-000001", "step-000004", "step-000005"]
    for step in (4, 5):
        (run / f"step-{step:06d}" / "progress.json").write_text("{}")
    keep_last(run, 1)
    assert listing(run) == ["step-000001", "step-000005"]
    assert_holds(load_newest(run), 1)
    keep_last(run, 0)
    assert listing(run) == ["step-000001"]


@pytest.fixture
def held_up(monkeypatch):
    """A disk on which every write waits until the event is set."""
    go_on = threading.Event()
    real = sealed_folder._write
    monkeypatch.setattr(
        sealed_folder, "_write", lambda *arguments: go_on.wait(20) and real(*arguments)
    )
    yield go_on
    go_on.set()


def test_training_goes_on_while_a_state_is_saved_as_it_was(run, held_up):
    live, counters = state(3), progress(3)
    with BackgroundSaver(run) as saver:
        saver.save(3, live, counters)
        assert not (run / "step-000003").exists()
        for group in live.values():
            for tensor in group.values():
                tensor.zero_()
        counters["schedule"]["scale"] = 0
        held_up.set()
        assert saver.wait() == run / "step-000003"
        assert saver.wait() is None
    assert_holds(load_newest(run), 3)


def test_one_save_is_under_way_at_a_time(run, monkeypatch):
    under_way, most = 0, 0
    real = background_saver.save_checkpoint

    def slow(*arguments):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.02)
        path = real(*arguments)
        under_way -= 1
        return path

    monkeypatch.setattr(background_saver, "save_checkpoint", slow)
    with BackgroundSaver(run, keep=2) as saver:
        for step in range(3, 8):
            saver.save(step, state(step), progress(step), protect=[4])
    assert most == 1
    assert listing(run) == ["step-000004", "step-000006", "step-000007"]
    assert_holds(load_newest(run), 7)


def test_what_goes_wrong_in_the_background_is_raised_by_the_next_call(run, monkeypatch):
    with BackgroundSaver(run) as saver:
        with monkeypatch.context() as patch:
            patch.setattr(sealed_folder, "open", FillingDisk(100), raising=False)
            saver.save(3, state(3), progress(3))
            with pytest.raises(CheckpointError, match="step-000003 does not fit on the disk"):
                saver.save(4, state(4), progress(4))
        saver.save(4, state(4), progress(4))
    assert listing(run) == ["step-000001", "step-000002", "step-000004"]
    monkeypatch.setattr(sealed_folder, "open", FillingDisk(100), raising=False)
    with pytest.raises(CheckpointError), BackgroundSaver(run) as saver:
        saver.save(5, state(5), progress(5))


@pytest.mark.gpu
@pytest.mark.parametrize("roomy", [True, False])
def test_a_state_on_a_gpu_is_saved_as_it_was(run, held_up, monkeypatch, roomy):
    if not roomy:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 0))
    live = {
        group: {name: tensor.cuda() for name, tensor in members.items()}
        for group, members in state(3).items()
    }
    with BackgroundSaver(run) as saver:
        torch.cuda._sleep(50_000_000)  # work is queued before and after the copy
        for members in live.values():
            for tensor in members.values():
                tensor.add_(0)
        saver.save(3, live, progress(3))
        for members in live.values():
            for tensor in members.values():
                tensor.zero_()
        held_up.set()
    assert_holds(load_newest(run), 3)


def test_the_average_is_the_mean_of_the_weights(tmp_path):
    steps = {
        step: {
            "w": torch.full((3, 2), 1.0 + step * 1e-7),
            "half": torch.tensor([step], dtype=torch.bfloat16),
        }
        for step in range(5)
    }
    for step, weights in steps.items():
        save_checkpoint(tmp_path, step, {"model": weights | {"count": torch.tensor(step)}}, {})
    mean = average(checkpoints(tmp_path)[-4:])
    stacked = torch.stack([steps[step]["w"].double() for step in (1, 2, 3, 4)])
    assert torch.equal(mean["w"], stacked.mean(0).float())
    assert mean["half"].dtype == torch.bfloat16
    assert mean["half"].item() == 2.5
    assert mean["count"].item() == 4


def test_an_average_needs_undamaged_checkpoints_of_one_model(run):
    (run / "step-000001" / "optimizer.safetensors").unlink()  # not what is averaged
    average(checkpoints(run))
    for other in (
        {"other": torch.ones(1)},
        {name: tensor[:1] for name, tensor in state(1)["model"].items()},
    ):
        path = save_checkpoint(run, 3, {"model": other}, {})
        with pytest.raises(
            CheckpointError, match="have different tensors; expected checkpoints of one model"
        ):
            average(checkpoints(run))
        shutil.rmtree(path)
    (run / "step-000001" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"step-000001/model\.safetensors is missing"):
        average(checkpoints(run))
    with pytest.raises(CheckpointError, match="no checkpoint to average"):
        average([])


def test_the_best_checkpoints_are_those_with_the_highest_score(tmp_path):
    for step, bleu in enumerate([3.0, 9.0, 1.0, 7.0]):
        save_checkpoint(tmp_path, step, {}, {"bleu": bleu})
    best = best_checkpoints(tmp_path, 2, lambda progress: progress["bleu"])
    assert [path.name for path in best] == ["step-000001", "step-000003"]
