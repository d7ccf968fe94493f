"""On CUDA: a training step with fused kernels has the loss and the gradients of the CPU, and a graph of
it takes the same steps."""

import random
from dataclasses import replace

import pytest
import torch

from transduce.config import ModelConfig, Recipe, TrainingConfig
from transduce.kernels.accelerate import accelerate
from transduce.kernels.tiles import tiled
from transduce.model import Tokens, Transformer
from transduce.training.cuda_graph import WARM_UP
from transduce.training.distributed import World
from transduce.training.hooks import Hooks
from transduce.training.learning import Learning
from transduce.training.step import Learner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CONFIG = ModelConfig(vocab_size=101, N=2, d_model=64, d_ff=128, h=4, d_k=16, d_v=16, p_drop=0.0)

LARGE_HEAD = replace(CONFIG, h=1, d_k=512, d_v=512)


def sentences(lengths, seed):
    chance = random.Random(seed)
    return [[*chance.choices(range(2, 100), k=n - 1), 0] for n in lengths]


@pytest.mark.parametrize("config", [CONFIG, LARGE_HEAD], ids=["", "large head"])
@pytest.mark.parametrize(("bf16", "bound"), [(False, 1e-3), (True, 5e-2)])
@pytest.mark.parametrize("ahead", [True, False], ids=["tiles made ahead", "tiles made there"])
def test_gradients_are_those_of_the_cpu(config, bf16, bound, ahead):
    lengths = [28, 3, 130, 61, 2, 90, 200, 17, 44, 64, 65]
    source = Tokens.packed([sentences(lengths, 1)], pad=100, width=768)
    target = Tokens.packed([sentences([max(2, n - 9) for n in lengths], 2)], pad=100, width=768)
    torch.manual_seed(0)
    learner = Learner(Transformer(config), eps_ls=0.1)
    expected = learner(source, target)
    expected[0].backward()
    there = Learner(Transformer(config).cuda(), eps_ls=0.1, bf16=bf16)
    accelerate(there.model)
    there.load_state_dict(learner.state_dict())
    sides = tiled(source, target) if ahead else (source, target)
    sums = there(*(side.to("cuda") for side in sides))
    sums[0].backward()
    assert sums.tolist() == pytest.approx(expected.tolist(), rel=bound / 5)
    for (name, ours), oracle in zip(there.named_parameters(), learner.parameters(), strict=True):
        error = (ours.grad.cpu() - oracle.grad).norm() / oracle.grad.norm().clamp(min=1e-3)
        assert error < bound, name


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_a_graph_takes_the_steps_of_python(optimizer):
    """One gradient, after the capture, is not finite."""
    training = TrainingConfig(optimizer=optimizer, weight_decay=0.01, clip_norm=1.0)
    recipe = Recipe(model=CONFIG, training=training)
    world = World(0, 1, torch.device("cuda"))
    lengths = [28, 3, 130, 61, 2, 90, 200, 17, 44, 64, 65]
    batches = [
        tuple(
            side.to("cuda")
            for side in tiled(
                Tokens.packed([sentences(lengths, seed)], pad=100, width=768),
                Tokens.packed([sentences(lengths, seed + 50)], pad=100, width=768),
            )
        )
        for seed in range(WARM_UP + 4)
    ]

    def weights(with_graph):
        learning = Learning(recipe, world, Hooks())
        assert learning.graph is not None
        if not with_graph:
            learning.graph = None
        for step, batch in enumerate(batches, start=1):
            broken = step == WARM_UP + 3
            result = learning.step([batch], 1e-45 if broken else 704, step, 0.01)
            assert result.finite != broken
        return learning.weights()

    expected = weights(with_graph=False)
    for name, weight in weights(with_graph=True).items():
        assert torch.allclose(weight, expected[name], atol=1e-5), name
