"""Two processes take the same steps as one."""

from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from tests.model.conftest import build
from tests.training.ranks import FORKS
from tests.training.test_step import ALONE, RECIPE, batch, steps
from transduce.errors import DataError
from transduce.training.distributed import World, distribute, world
from transduce.training.memory import choose_micro_batches, out_of_memory_note
from transduce.training.step import Learner

pytestmark = pytest.mark.ranks

# Starting processes takes longer than all their steps: one start serves every case.
SHARES = {
    "one batch each": ([[0, 1]], [[2, 3]]),
    "accumulated, uneven tokens": ([[1], [0]], [[2], [3]]),
}
CHANGES = [{}, {"clip_norm": 0.01}, {"optimizer": "muon"}]
CASES = list(product(("ddp", "fsdp"), SHARES, CHANGES))


def changed(settings):
    return replace(RECIPE, training=replace(RECIPE.training, **settings))


def take_steps(rank, folder):
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=30)
    )
    world = World(rank, 2, torch.device("cpu"))
    found = []
    for how, shares, settings in CASES:
        learner = Learner(build(), RECIPE.training.eps_ls)
        root = distribute(learner, learner.model, how, world)
        micro_batches = [batch(rows) for rows in SHARES[shares][rank]]
        weights, result = steps(
            micro_batches, changed(settings), world=world, learner=root, total=16
        )
        full = {
            name.removeprefix("module."): weight.full_tensor() if how == "fsdp" else weight
            for name, weight in weights.items()
        }
        found.append(
            {"weights": full, "loss": result.objective, "norm": float(result.gradient_norm)}
        )
    talk = {
        (how, parts): reductions(how, parts, world) for how in ("ddp", "fsdp") for parts in (1, 3)
    }
    together = {
        "shared": [
            world.share(list(range(count)), lambda items: [-item for item in items])
            for count in range(6)
        ],
        "any": [world.any(flag) for flag in (False, rank == 1, True)],
        "micro-batches": micro_batches_where_one_rank_is_short(world, Path(folder)),
        "agrees": [world.agrees(number) for number in (7, rank, -rank)],
        "gradient bytes": [gradient_bytes(bf16, world) for bf16 in (False, True)],
    }
    torch.save((found, talk, together), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def reductions(how, parts, world):
    """Return the number of reductions over ranks in a step of `parts` micro-batches."""
    learner = Learner(build(), RECIPE.training.eps_ls)
    root = distribute(learner, learner.model, how, world)
    with torch.profiler.profile() as profile:
        steps([batch([0])] * parts, RECIPE, count=1, world=world, learner=root, total=16)
    return sum(
        event.name.startswith("c10d::") and "reduce" in event.name for event in profile.events()
    )


def micro_batches_where_one_rank_is_short(world, folder):
    """Return the number of micro-batches when two are too few on rank 1."""
    if world.rank == 1:
        out_of_memory_note(folder, world, 2).touch()
    run = folder / "elsewhere" if world.rank == 0 else folder
    return choose_micro_batches(
        replace(RECIPE, training=replace(RECIPE.training, micro_batches=2)), world, run
    )


def gradient_bytes(bf16, world):
    """Return the bytes per parameter that a step of DDP sends."""
    learner = Learner(build().float(), RECIPE.training.eps_ls, bf16=bf16)
    root, sent = distribute(learner, learner.model, "ddp", world), []
    reduce = dist.all_reduce
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            dist, "all_reduce", lambda value, *op: sent.append(value.nbytes) or reduce(value, *op)
        )
        steps([batch([0])], RECIPE, count=1, world=world, learner=root, total=16)
    return max(sent) / sum(weight.numel() for weight in learner.parameters())


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    multiprocessing.start_processes(
        take_steps, (str(folder),), nprocs=2, start_method=FORKS.get_start_method()
    )
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def test_gradients_are_exchanged_once_a_step_and_not_between_micro_batches(ranks):
    for _, talk, _ in ranks:
        for how in ("ddp", "fsdp"):
            assert talk[how, 1] == talk[how, 3] > 0


def test_ranks_share_work_and_agree(ranks):
    for _, _, together in ranks:
        assert together["shared"] == [[-item for item in range(count)] for count in range(6)]
        assert together["any"] == [False, True, True]
        assert together["agrees"] == [True, False, False]
        assert together["micro-batches"] == 4


def test_ddp_sends_four_bytes_a_parameter(ranks):
    """bench/scaling.py relies on it."""
    for _, _, together in ranks:
        assert together["gradient bytes"] == [4, 4]


def test_two_ranks_take_the_steps_of_one(ranks):
    found = [found for found, *_ in ranks]
    for index, (how, shares, settings) in enumerate(CASES):
        expected, result = steps([batch([0, 1, 2, 3])], changed(settings), world=ALONE)
        for rank in range(2):
            case = f"{how}, {shares}, {settings}, rank {rank}"
            ours = found[rank][index]
            assert ours["loss"] == pytest.approx(result.objective), case
            assert ours["norm"] == pytest.approx(float(result.gradient_norm)), case
            for name, weight in expected.items():
                assert torch.allclose(ours["weights"][name], weight, atol=1e-9), f"{case}: {name}"


def test_an_error_carries_the_rank_that_met_it():
    with pytest.raises(DataError) as met, world("cpu"):
        raise DataError("damaged")
    assert met.value.met_by_rank == 0
