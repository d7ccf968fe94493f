"""The pairs of each training step."""

import itertools
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.conftest import like_sentences
from transduce.data.sampler import SHARD_STEPS, Sampler, deal
from transduce.data.store import Ragged, Section
from transduce.errors import ConfigError, DataError


def bare_store(lengths, corpora=None, variants=1):
    """A store of lengths alone."""
    offsets = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(lengths, axis=0)])
    sides = [Ragged(np.empty(0, np.uint16), offsets[:, side].copy()) for side in (0, 1)]
    starts = itertools.accumulate(
        (corpora or {"corpus": len(lengths) // variants}).values(), initial=0
    )
    ranges = {
        name: range(a, b)
        for name, (a, b) in zip(corpora or ["corpus"], itertools.pairwise(starts), strict=True)
    }
    section = Section(*sides, ranges, variants, int(lengths.max(initial=0)), None)
    tokenizer = SimpleNamespace(pad=99)
    return SimpleNamespace(
        train=section, source_tokenizer=tokenizer, target_tokenizer=tokenizer, path="here"
    )


def epoch_pairs(plan, epoch=0):
    steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
    return [plan.pairs(step) for step in steps]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=400),
    cuts=st.lists(st.integers(0, 400), max_size=3),
    tokens=st.integers(36, 300),
    seed=st.integers(0, 2**63),
    layout=st.sampled_from(["packed", "padded"]),
)
@settings(max_examples=150, deadline=None, database=None)
def test_every_pair_is_in_exactly_one_step_of_an_epoch(lengths, cuts, tokens, seed, layout):
    lengths = np.array(lengths)
    edges = sorted({0, len(lengths), *(cut for cut in cuts if cut < len(lengths))})
    corpora = {str(a): b - a for a, b in itertools.pairwise(edges)}
    plan = Sampler(bare_store(lengths, corpora), tokens_per_step=tokens, seed=seed, layout=layout)
    for epoch in (0, 1, 5):
        steps = epoch_pairs(plan, epoch)
        assert sorted(np.concatenate(steps)) == list(range(len(lengths)))
        assert min(map(len, steps)) > 0


def test_steps_hold_about_the_tokens_asked_for():
    lengths = like_sentences(60_000)
    plan = Sampler(bare_store(lengths), tokens_per_step=25_000, seed=3)
    assert plan.steps_per_epoch >= SHARD_STEPS / 2
    sums = np.array([lengths[pairs].sum(0) for pairs in epoch_pairs(plan)])
    assert 24_000 < sums.max(1).mean() <= 25_000
    assert sums.max(1).max() < 25_200
    assert (np.ptp(sums, axis=0) < 250).all()


def together(steps):
    """Every two pairs that share a step."""
    return {two for step in steps for two in itertools.combinations(sorted(step.tolist()), 2)}


@pytest.mark.parametrize(
    "lengths", [like_sentences(1000), np.full((1000, 2), 20)], ids=["mixed", "equal"]
)
def test_epochs_and_seeds_shuffle_anew(lengths):
    store = bare_store(lengths)
    plan, other = (Sampler(store, tokens_per_step=1000, seed=seed) for seed in (1, 2))
    first, second, foreign = epoch_pairs(plan, 0), epoch_pairs(plan, 1), epoch_pairs(other, 0)
    for again in (second, foreign):
        assert (
            len(together(first) & together(again)) < 2 * len(together(first)) / plan.steps_per_epoch
        )


def test_each_pass_starts_at_another_pair():
    plan = Sampler(bare_store(np.full((5000, 2), 20)), tokens_per_step=1000, seed=1)
    assert SHARD_STEPS < plan.steps_per_epoch <= 2 * SHARD_STEPS
    half = plan.steps_per_epoch // 2
    halves = [set(np.concatenate(epoch_pairs(plan, epoch)[:half]).tolist()) for epoch in (0, 1)]
    assert len(halves[0] & halves[1]) < 0.95 * len(halves[0])


def test_any_step_is_reached_without_those_before_it():
    store = bare_store(like_sentences(5000))
    straight = Sampler(store, tokens_per_step=1500, seed=4)
    steps = [straight.pairs(step) for step in range(3 * straight.steps_per_epoch)]
    for step in (0, len(steps) - 1, straight.steps_per_epoch, 77, 76):
        assert np.array_equal(Sampler(store, tokens_per_step=1500, seed=4).pairs(step), steps[step])
    far = 10**9
    assert np.array_equal(
        straight.pairs(far), Sampler(store, tokens_per_step=1500, seed=4).pairs(far)
    )


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_a_step_has_the_same_pairs_however_it_is_divided(make_store, layout, parts):
    lengths = like_sentences(1500)
    plan = Sampler(make_store(lengths), tokens_per_step=3000, seed=5, layout=layout)
    for step in (0, 3, plan.steps_per_epoch + 1):
        shares = [plan.batch(step, part, parts) for part in range(parts)]
        assert len({(share.source.shape, share.target.shape) for share in shares}) == 1
        together = np.concatenate([share.pairs for share in shares])
        assert sorted(together) == sorted(plan.pairs(step))
        assert sum(share.target_tokens for share in shares) == lengths[together, 1].sum()


@pytest.mark.parametrize(("parts", "share"), [(1, 0.98), (2, 0.97), (4, 0.95)])
def test_packed_batches_have_one_shape_and_little_padding(make_store, parts, share):
    plan = Sampler(make_store(like_sentences(30_000)), tokens_per_step=25_000, seed=6)
    batches = [
        plan.batch(step, part, parts)
        for step in range(plan.steps_per_epoch)
        for part in range(parts)
    ]
    assert {(batch.source.shape[1], batch.target.shape[1]) for batch in batches} == {
        plan.shape(parts)
    }
    assert np.mean([batch.efficiency for batch in batches], axis=0).min() > share


@pytest.mark.slow
def test_one_packed_shape_lasts_for_many_epochs():
    lengths = like_sentences(30_000, seed=2)
    plan = Sampler(bare_store(lengths), tokens_per_step=10_000, seed=7)
    for parts in (1, 8):
        room = plan.shape(parts)
        for step in range(20 * plan.steps_per_epoch):
            rows = lengths[plan.pairs(step)]
            hands = deal(rows, parts)
            used = [np.bincount(hands, rows[:, side]).max() for side in (0, 1)]
            assert used[0] <= room[0]
            assert used[1] <= room[1]


def test_padded_batches_have_few_shapes(make_store):
    plan = Sampler(
        make_store(like_sentences(30_000)), tokens_per_step=5000, seed=8, layout="padded"
    )
    batches = [plan.batch(step) for step in range(plan.steps_per_epoch)]
    assert len({batch.source.shape for batch in batches}) < 60
    assert np.mean([batch.efficiency for batch in batches]) > 0.7


def test_pairs_that_cannot_be_dealt_evenly_still_fit(make_store):
    lengths = np.array([[100, 1], [1, 100]] * 20 + [[1, 1]] * 5)
    plan = Sampler(make_store(lengths), tokens_per_step=400, seed=9)
    for parts in (1, 7, 50):
        for step in range(plan.steps_per_epoch):
            batches = [plan.batch(step, part, parts) for part in range(parts)]
            assert (
                sum(batch.target_tokens for batch in batches) == lengths[plan.pairs(step), 1].sum()
            )


def test_corpora_are_mixed_by_weight():
    corpora = {"large": 4000, "small": 500}
    store = bare_store(like_sentences(4500), corpora)
    plan = Sampler(store, tokens_per_step=1000, seed=1, weights=[1, 8])
    drawn = np.concatenate([np.concatenate(epoch_pairs(plan, epoch)) for epoch in range(4)])
    small = drawn >= 4000
    assert small.mean() == pytest.approx(0.5, abs=0.02)
    counts = np.bincount(drawn[small] - 4000)
    assert np.ptp(counts) <= 1  # pass after pass, none is drawn twice before all are drawn
    per_step = [(pairs >= 4000).mean() for pairs in epoch_pairs(plan)]
    assert min(per_step) > 0.2


def test_temperature_raises_the_small():
    store = bare_store(like_sentences(5000), {"large": 4500, "small": 500})
    shares = []
    for temperature in (1.0, 2.0, 100.0):
        plan = Sampler(store, tokens_per_step=1000, seed=1, temperature=temperature)
        shares.append((np.concatenate(epoch_pairs(plan)) >= 4500).mean())
    assert shares == pytest.approx([0.1, 0.25, 0.5], abs=0.02)


def test_each_pass_takes_the_next_variant(make_store):
    lengths = np.concatenate([like_sentences(300), like_sentences(300) + 1])
    store = make_store(lengths, variants=2)
    plan = Sampler(store, tokens_per_step=1000, seed=1)
    for epoch, variant in ((0, 0), (1, 1), (2, 0)):
        rows = np.sort(np.concatenate(epoch_pairs(plan, epoch)))
        assert np.array_equal(rows, variant * 300 + np.arange(300))
    step = plan.steps_per_epoch  # the second variant's first
    batch = plan.batch(step)
    assert batch.target_tokens == lengths[plan.pairs(step), 1].sum()
    assert batch.pairs.max() < 300


def test_dealing_evens_out_both_sides():
    lengths = like_sentences(4000)
    for hands in (1, 2, 5, 64, 100):
        dealt = deal(lengths, hands)
        sums = np.array([np.bincount(dealt, lengths[:, side], hands) for side in (0, 1)])
        assert np.ptp(sums, axis=1).max() <= 0.75 * lengths.max()


def test_starting_costs_the_same_at_any_size():
    peaks = []
    for pairs in (30_000, 1_000_000):
        store = bare_store(np.full((pairs, 2), 20))
        tracemalloc.start()
        Sampler(store, tokens_per_step=5000, seed=1).pairs(12_345)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_mistakes_get_one_line():
    store = bare_store(np.full((100, 2), 50))
    with pytest.raises(
        ConfigError, match=r"tokens_per_step is 100, .* 50 tokens; expected at least 200"
    ):
        Sampler(store, tokens_per_step=100, seed=1)
    with pytest.raises(ConfigError, match="2 weights are given for 1 corpora"):
        Sampler(store, tokens_per_step=500, seed=1, weights=[1, 2])
    with pytest.raises(DataError, match="no training pairs"):
        Sampler(bare_store(np.zeros((0, 2), np.int64)), tokens_per_step=500, seed=1)
    plan = Sampler(store, tokens_per_step=500, seed=1)
    with pytest.raises(ConfigError, match="part is 2 of 2"):
        plan.batch(0, 2, 2)
    with pytest.raises(ConfigError, match="the first one is 0"):
        plan.batch(-1)
