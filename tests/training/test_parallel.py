"""Two processes take the same steps as one."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from tests.model.conftest import build
from tests.training.test_step import ALONE, RECIPE, batch, steps
from transduce.training.parallel import World, distribute
from transduce.training.step import Learner

pytestmark = pytest.mark.ranks


def take_steps(rank, how, shares, clip_norm, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    world = World(rank, 2, torch.device("cpu"))
    learner = Learner(build(), RECIPE.training.eps_ls)
    root = distribute(learner, learner.model, how, world)
    recipe = replace(RECIPE, training=replace(RECIPE.training, clip_norm=clip_norm))
    weights, result = steps([batch(rows) for rows in shares[rank]], recipe, world=world, learner=root, total=16)
    full = {
        name.removeprefix("module."): weight.full_tensor() if how == "fsdp" else weight
        for name, weight in weights.items()
    }
    torch.save({"weights": full, "loss": result.loss, "norm": float(result.gradient_norm)}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
@pytest.mark.parametrize("clip_norm", [0.0, 0.01])
@pytest.mark.parametrize(
    "shares", [([[0, 1]], [[2, 3]]), ([[1], [0]], [[2], [3]])], ids=["one batch each", "accumulated, uneven tokens"]
)
def test_two_ranks_take_the_steps_of_one(how, clip_norm, shares, tmp_path):
    recipe = replace(RECIPE, training=replace(RECIPE.training, clip_norm=clip_norm))
    expected, result = steps([batch([0, 1, 2, 3])], recipe, world=ALONE)
    multiprocessing.spawn(take_steps, (how, shares, clip_norm, str(tmp_path)), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["loss"] == pytest.approx(result.loss)
        assert found["norm"] == pytest.approx(float(result.gradient_norm))
        for name, weight in expected.items():
            assert torch.allclose(found["weights"][name], weight, atol=1e-9), name
