"""One step: the same gradient however the batch is split, and a model that learns."""

import contextlib
import itertools
import math
import traceback
from dataclasses import replace

import pytest
import torch

from tests.model.conftest import SMALL, SOURCES, TARGETS, build
from transduce.config import ModelConfig, Recipe, TrainingConfig
from transduce.model import Tokens, Transformer
from transduce.training.distributed import World
from transduce.training.memory import recompute_activations
from transduce.training.optimizer import build_optimizers, learning_rate
from transduce.training.step import Learner, StepResult, dropout_seed, seed_dropout, train_step

ALONE = World(0, 1, torch.device("cpu"))
PAD = 30
RECIPE = Recipe(model=ModelConfig(**SMALL), training=TrainingConfig(steps=10, warmup_steps=4))


def steps(micro_batches, recipe=RECIPE, count=3, world=ALONE, learner=None, total=0):
    """Weights after some steps on the same micro-batches, and the last result."""
    learner = learner or Learner(build(p_drop=recipe.model.p_drop), recipe.training.eps_ls)
    optimizers = build_optimizers(learner.named_parameters(), recipe.training)
    tokens = total or sum(int((target.ids != PAD).sum()) for _, target in micro_batches)
    for step in range(1, count + 1):
        result = train_step(
            learner,
            optimizers,
            micro_batches,
            tokens,
            recipe.training,
            step,
            learning_rate(recipe, step),
            world,
        )
    return {name: weight.detach().clone() for name, weight in learner.named_parameters()}, result


def batch(rows):
    return Tokens.padded([SOURCES[row] for row in rows], PAD), Tokens.padded(
        [TARGETS[row] for row in rows], PAD
    )


def assert_same(first, second):
    for name, weight in first.items():
        assert torch.allclose(weight, second[name], atol=1e-9), name


def test_accumulation_of_uneven_parts_equals_one_big_batch():
    whole, result = steps([batch([0, 1, 2, 3])])
    parts, sums = steps([batch([1]), batch([0, 2, 3])])
    assert_same(whole, parts)
    assert result.objective == pytest.approx(sums.objective)
    assert result.target_tokens == sum(map(len, TARGETS))


def test_packed_equals_padded():
    packed = (Tokens.packed([SOURCES], PAD, width=25), Tokens.packed([TARGETS], PAD, width=30))
    assert_same(steps([batch([0, 1, 2, 3])])[0], steps([packed])[0])


def test_dropout_is_repeated_by_step():
    recipe = replace(RECIPE, model=replace(RECIPE.model, p_drop=0.5))
    learner = Learner(build(p_drop=0.5).train(), 0.1)
    first = steps([batch([0, 1])], recipe, learner=learner)[0]
    torch.rand(100)  # someone else draws numbers
    again = steps([batch([0, 1])], recipe, learner=Learner(build(p_drop=0.5).train(), 0.1))[0]
    assert_same(first, again)


def test_dropout_differs_between_seeds_steps_and_ranks():
    keys = list(itertools.product(range(3), range(1, 100), range(8)))
    assert len({dropout_seed(*key) for key in keys}) == len(keys)
    learner = Learner(build(), 0.1)
    train_step(
        learner,
        [],
        [batch([0]), batch([1])],
        12,
        RECIPE.training,
        7,
        0.1,
        World(3, 1, torch.device("cpu")),
    )
    assert torch.initial_seed() == dropout_seed(RECIPE.training.seed, 7, 3)


def test_seeding_a_step_takes_no_stack_trace(monkeypatch):
    """torch.manual_seed takes one for every missing device type: longer than a small step."""
    taken = []
    monkeypatch.setattr(traceback, "format_stack", lambda *_: taken.append("a trace") or [])
    seed_dropout(1, 2, 0, torch.device("cpu"))
    assert taken == []


@pytest.mark.parametrize("bf16", [False, True])
def test_layers_computed_twice_have_the_same_gradients(bf16):
    found = []
    for twice in (False, True):
        torch.manual_seed(0)
        learner = Learner(Transformer(replace(RECIPE.model, p_drop=0.3)), 0.1, bf16=bf16)
        if twice:
            recompute_activations(learner.model)
        torch.manual_seed(1)
        learner(*batch([0, 1, 2, 3]))[0].backward()
        found.append({name: weight.grad for name, weight in learner.named_parameters()})
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_gradients_are_shared_after_the_last_micro_batch_alone(monkeypatch):
    shared = []
    monkeypatch.setattr(
        "transduce.training.step.gradient_sync",
        lambda _, now: shared.append(now) or contextlib.nullcontext(),
    )
    steps([batch([0]), batch([1]), batch([2])], count=1)
    assert shared == [False, False, True]


def test_reports_are_per_target_token():
    result = StepResult(torch.tensor([30.0, 10 * math.log(7)]), 10, torch.tensor(1.0))
    assert (result.objective, result.perplexity) == pytest.approx((3.0, 7.0))


def test_a_step_that_is_not_finite_changes_nothing():
    learner = Learner(build(), 0.1)
    before = {name: weight.detach().clone() for name, weight in learner.named_parameters()}
    learner.model.encoder[0].feed_forward.w_1.weight.register_hook(
        lambda gradient: gradient * math.nan
    )
    after, result = steps([batch([0, 1])], count=1, learner=learner)
    assert not result.finite
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(
        weight.grad is None for weight in learner.parameters()
    )  # the next step starts from zero


def test_clipping_bounds_the_gradient():
    recipe = replace(RECIPE, training=replace(RECIPE.training, clip_norm=1e-3))
    learner = Learner(build(), 0.1)
    optimizers = build_optimizers(learner.named_parameters(), recipe.training)
    seen = []
    optimizers[0].register_step_pre_hook(
        lambda optimizer, *_: seen.append(
            torch.nn.utils.get_total_norm(
                [weight.grad for weight in optimizer.param_groups[0]["params"]]
            )
        )
    )
    result = train_step(learner, optimizers, [batch([0, 1])], 12, recipe.training, 1, 0.1, ALONE)
    assert float(result.gradient_norm) > 1e-3
    assert float(seen[0]) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_one_batch_is_memorized(optimizer):
    training = TrainingConfig(
        steps=80,
        warmup_steps=10,
        learning_rate=0.01,
        eps_ls=0.0,
        optimizer=optimizer,
        schedule="cosine",
    )
    recipe = Recipe(model=RECIPE.model, training=training)
    torch.manual_seed(0)
    learner = Learner(Transformer(RECIPE.model), 0.0)
    _, result = steps([batch([0, 1, 2, 3])], recipe, 80, learner=learner)
    assert result.perplexity < 1.05
    logits = learner.model(batch([1])[0], batch([1])[1].shifted_right(PAD))
    assert logits.argmax(-1).tolist() == [TARGETS[1]]


def test_a_copy_task_is_solved():
    """Trained on new random sequences in every step, the model copies unseen ones."""
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=14, N=1, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, p_drop=0.0)
    training = TrainingConfig(
        steps=300, warmup_steps=30, learning_rate=0.01, eps_ls=0.0, schedule="cosine"
    )
    recipe = Recipe(model=config, training=training)
    learner = Learner(Transformer(config), 0.0)
    optimizers = build_optimizers(learner.named_parameters(), training)
    generator = torch.Generator().manual_seed(1)

    def sentences(count):
        lengths = torch.randint(1, 8, (count,), generator=generator).tolist()
        return [
            [*torch.randint(2, 13, (length,), generator=generator).tolist(), 0]
            for length in lengths
        ]

    for step in range(1, training.steps + 1):
        tokens = Tokens.padded(sentences(64), 13)
        rate, count = learning_rate(recipe, step), int((tokens.ids != 13).sum())
        train_step(learner, optimizers, [(tokens, tokens)], count, training, step, rate, ALONE)
    unseen = Tokens.padded(sentences(200), 13)
    answers = learner.model.eval()(unseen, unseen.shifted_right(13)).argmax(-1)
    real = unseen.ids != 13
    assert ((answers == unseen.ids) | ~real).all(-1).float().mean() >= 0.99


def test_rounded_weights_that_are_multiplied_together_are_adjacent():
    from transduce.training.step import _Rounded

    attention = Transformer(RECIPE.model).encoder[0].self_attention
    weights = [attention.w_q.weight, attention.w_k.weight, attention.w_v.weight]
    odd = torch.nn.Parameter(torch.randn(3))
    first, *rounded = _Rounded.apply(odd, *weights)
    assert torch.equal(first, odd.bfloat16())
    for before, after in itertools.pairwise(rounded):
        assert after.data_ptr() == before.data_ptr() + before.nbytes
        assert after.data_ptr() % 16 == 0  # aligned for vector loads of a GPU
    for mine, weight in zip(rounded, weights, strict=True):
        assert torch.equal(mine, weight.bfloat16())
