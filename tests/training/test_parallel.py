"""Two processes take the same steps as one."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from tests.model.conftest import build
from tests.training.test_step import ALONE, RECIPE, batch, steps
from transduce.training.parallel import World, distribute
from transduce.training.step import Learner

pytestmark = pytest.mark.ranks

# Starting processes takes longer than all their steps: one start serves every case.
SHARES = {"one batch each": ([[0, 1]], [[2, 3]]), "accumulated, uneven tokens": ([[1], [0]], [[2], [3]])}
CASES = list(product(("ddp", "fsdp"), SHARES, (0.0, 0.01)))


def clipped(norm):
    return replace(RECIPE, training=replace(RECIPE.training, clip_norm=norm))


def take_steps(rank, folder):
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=30))
    world = World(rank, 2, torch.device("cpu"))
    found = []
    for how, shares, clip_norm in CASES:
        learner = Learner(build(), RECIPE.training.eps_ls)
        root = distribute(learner, learner.model, how, world)
        micro_batches = [batch(rows) for rows in SHARES[shares][rank]]
        weights, result = steps(micro_batches, clipped(clip_norm), world=world, learner=root, total=16)
        full = {
            name.removeprefix("module."): weight.full_tensor() if how == "fsdp" else weight
            for name, weight in weights.items()
        }
        found.append({"weights": full, "loss": result.loss, "norm": float(result.gradient_norm)})
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_take_the_steps_of_one(tmp_path):
    multiprocessing.spawn(take_steps, (str(tmp_path),), nprocs=2)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for index, (how, shares, clip_norm) in enumerate(CASES):
        expected, result = steps([batch([0, 1, 2, 3])], clipped(clip_norm), world=ALONE)
        for rank in range(2):
            case = f"{how}, {shares}, clip_norm {clip_norm}, rank {rank}"
            ours = found[rank][index]
            assert ours["loss"] == pytest.approx(result.loss), case
            assert ours["norm"] == pytest.approx(float(result.gradient_norm)), case
            for name, weight in expected.items():
                assert torch.allclose(ours["weights"][name], weight, atol=1e-9), f"{case}: {name}"
