"""Searching on a GPU, run here by Triton's interpreter: every kernel equals its oracle in torch, and so do searches."""

import gc
import math
import random
import weakref
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.engines.test_torch import ids, source_pad
from tests.model.conftest import SOURCES, VARIANTS, build
from transduce.config import SearchConfig
from transduce.engines.buffers import buffered
from transduce.engines.model_calls import log_probabilities
from transduce.errors import InputError
from transduce.kernels.accelerate import accelerate
from transduce.model import Tokens, attention
from transduce.search import beam_step
from transduce.search.beams import _map_tensors, begin
from transduce.search.candidates import candidates, enforce
from transduce.search.hypothesis import Job
from transduce.search.search import search, sentence_seed

pytest.importorskip("triton")

from transduce.engines.cuda import continuous_batching, graphs, slots
from transduce.engines.cuda.fixed_state import FixedState
from transduce.kernels import decoding as kernels
from transduce.kernels.beam_step import fits, settle
from transduce.kernels.topk import Picks, pick

W = 80
# Half precision is fp16 here: the interpreter cannot multiply matrices of bf16.
BOUNDS = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.float16: {"rtol": 5e-3, "atol": 5e-3}}


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("K", "r", "d_k", "d_v"), [(2, None, 16, 16), (3, None, 24, 6), (2, 50, 16, 32)]
)
def test_a_hypothesis_attends_to_the_positions_of_its_ancestors(dtype, K, r, d_k, d_v):
    """The first sentence has more keys than one tile holds; the second is at its first token."""
    torch.manual_seed(0)
    h, R, lengths = 2, 2 * K, [70, 0]
    joined, cache = (
        torch.randn(R, h * (2 * d_k + d_v)).to(dtype),
        torch.randn(R, W, h * (d_k + d_v)).to(dtype),
    )
    ancestors = (
        torch.randint(K, (R, W), dtype=torch.int32)
        + torch.arange(2, dtype=torch.int32).repeat_interleave(K)[:, None] * K
    )
    before = cache.clone()
    output = kernels.attend_self(joined, cache, ancestors, torch.tensor(lengths), h, d_k, r)
    for row in range(R):
        t = lengths[row // K]
        q, new = joined[row].split([h * d_k, h * (d_k + d_v)])
        first = 0 if r is None else max(0, t - r // 2)
        kept = [before[ancestors[row, c], c] for c in range(first, t)]
        keys, values = torch.stack([*kept, new]).double().split([h * d_k, h * d_v], dim=1)
        q, k, v = (
            x.view(-1, h, x.size(-1) // h).transpose(0, 1) for x in (q[None].double(), keys, values)
        )
        expected = attention(q, k, v).flatten()
        torch.testing.assert_close(output[row].double(), expected, **BOUNDS[dtype])
        assert cache[row, t].equal(new)
        before[row, t] = new
    assert cache.equal(before)  # and nothing else was written


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(("K", "d_k", "d_v"), [(3, 16, 16), (3, 24, 6), (20, 16, 16)])
def test_the_hypotheses_of_a_sentence_attend_to_its_source_and_not_to_padding(dtype, K, d_k, d_v):
    torch.manual_seed(0)
    h, S, lengths = 2, 64, [50, 1]
    queries, memory = (
        torch.randn(2 * K, h * d_k).to(dtype),
        torch.randn(2, S, 2, h * (d_k + d_v)).to(dtype)[:, :, 1],
    )
    output = kernels.attend_memory(
        queries, memory, torch.tensor(lengths, dtype=torch.int32), h, d_k
    )
    for b, length in enumerate(lengths):
        q = queries.view(2, K, h, d_k)[b].transpose(0, 1)
        keys, values = memory[b, :length].split([h * d_k, h * d_v], dim=1)
        k, v = (x.reshape(length, h, -1).transpose(0, 1).double() for x in (keys, values))
        expected = attention(q.double(), k, v).transpose(0, 1).flatten(1)
        torch.testing.assert_close(output.view(2, K, -1)[b].double(), expected, **BOUNDS[dtype])


def accelerated(**changes):
    """A small model as an engine on a GPU has it."""
    model = build(**changes).float()
    accelerate(model, "cuda")
    return model


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@torch.inference_mode()
def test_a_step_of_every_model_equals_the_plain_one(changes):
    model, plain, chance, K = (
        accelerated(**changes),
        build(**changes).float(),
        torch.Generator().manual_seed(0),
        2,
    )
    pad, length = source_pad(model), torch.zeros(2, dtype=torch.long)
    some = SOURCES[:2]
    state, tokens = FixedState(model, length, 8, 2 * K, 6), torch.full((2 * K,), model.config.pad)
    padded = torch.tensor(
        [[*source, *[pad] * (8 - len(source))] for source in some[::-1]], dtype=torch.int32
    )
    lengths = torch.tensor([len(source) for source in some[::-1]], dtype=torch.int32)
    state.read(torch.tensor([1, 0]), padded, lengths)  # the places need not be in order
    cache = buffered(plain.encode(Tokens.padded(some, pad))).select(
        torch.arange(2).repeat_interleave(K)
    )
    for t in range(3):
        length.fill_(t)
        expected, cache = plain.decode(tokens[:, None], cache)
        logits, _ = model.decode(tokens[:, None], state)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
        rows = (torch.arange(2)[:, None] * K + torch.randint(K, (2, K), generator=chance)).flatten()
        cache = cache.select(rows)
        state.ancestors.copy_(state.ancestors[rows].where(torch.arange(6) < t, rows[:, None].int()))
        tokens = torch.randint(model.config.vocab_size - 1, (2 * K,), generator=chance)


@torch.inference_mode()
def test_a_model_that_has_learned_since_is_searched_as_it_is_now():
    model = accelerated(N=1, positions="learned", attention_bias=True)
    states = [FixedState(model, torch.zeros(1, dtype=torch.long), 8, 1, 4)]
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    states[0].refresh()
    states.append(FixedState(model, torch.zeros(1, dtype=torch.long), 8, 1, 4))
    logits = []
    for state in states:
        source = torch.tensor([[5, 6, 0, 30, 30, 30, 30, 30]], dtype=torch.int32)
        state.read(torch.tensor([0]), source, torch.tensor([3], dtype=torch.int32))
        logits.append(model.decode(torch.tensor([[5]]), state)[0])
    assert logits[0].equal(logits[1])


CONFIGS = st.integers(1, 5).flatmap(
    lambda K: st.builds(
        SearchConfig,
        beam_size=st.just(K),
        n_best=st.integers(1, K),
        alpha=st.sampled_from([0.0, 0.6, 1.5]),
        patience=st.sampled_from([1.0, 1.5, math.inf]),
        min_length=st.integers(0, 3),
        forbid_unk=st.booleans(),
    )
)


@pytest.mark.parametrize(("V", "levels"), [(5, 3), (70, 2), (4500, 5), (4500, 10**6)])
@pytest.mark.parametrize("dtype", BOUNDS)
def test_the_picks_of_logits_are_the_candidates_of_log_probabilities(V, levels, dtype):
    config = SearchConfig(beam_size=2, forbid_unk=levels == 2)
    draw = torch.Generator().manual_seed(V + levels)
    logits = (torch.randint(levels, (4, V), generator=draw) * (20 / levels) - 8).to(dtype)
    logits[0, -1], logits[1, 2:-2] = 60.0, -torch.inf
    beams = begin([6, 6], V - 1, config, prefixes=[[3], []])
    picks = pick(logits, beams, config)
    log_probs = log_probabilities(logits.clone())
    values, tokens = candidates(log_probs, 3, config)
    torch.testing.assert_close(picks.ends, values[:, 0])
    said = values[:, 1:] > -math.inf
    assert said.sum() >= 10 or V == 5
    assert picks.ids[:, :3][said].equal(tokens[:, 1:][said].int())
    torch.testing.assert_close(picks.values[:, : said.size(1)], values[:, 1:], rtol=1e-5, atol=1e-5)
    assert (picks.values[:, 3:] == -math.inf).all()
    torch.testing.assert_close(picks.forced[:2], log_probs[:2, 3])
    assert pick(logits[2:], beams.select(torch.tensor([1])), config).values.equal(picks.values[2:])


def copy(beams):
    return _map_tensors(lambda tensor: tensor.clone(), beams)


# Always the same examples, and none is made smaller: the interpreter takes its time.
@settings(deadline=None, max_examples=10, derandomize=True, phases=[Phase.generate])
@given(config=CONFIGS, ties=st.booleans(), seed=st.integers(0, 10**6), data=st.data())
def test_settling_in_place_equals_the_search_in_torch(config, ties, seed, data):
    """Exactly, to the last bit of every score, as long as a sentence is searched."""
    V, K, C, B, draw = 50, config.width, 8, 2, torch.Generator().manual_seed(seed)
    limits = data.draw(st.lists(st.integers(0, 4), min_size=B, max_size=B))
    prefixes = [
        data.draw(st.lists(st.integers(1, V - 2), max_size=min(limit, 2))) for limit in limits
    ]
    expected = begin(limits, V - 1, config, prefixes=prefixes, capacity=W - 1)
    found, tokens = copy(expected), torch.full((B * K,), V - 1)
    ancestors, expected_ancestors = (torch.zeros(B * K, W, dtype=torch.int32) for _ in range(2))
    for _ in range(max(limits) + 1):
        ends, forced = (-4 * torch.rand(B * K, generator=draw) for _ in range(2))
        values = (-4 * torch.rand(B * K, C, generator=draw)).sort(descending=True).values
        if ties:
            values, ends = values.round(), ends.round()
        values[torch.rand(B * K, generator=draw) < 0.1] = -math.inf
        values[:, K + 1 :] = -math.inf
        said = torch.stack([torch.randperm(V - 3, generator=draw)[:C] + 2 for _ in range(B * K)])
        settle(found, Picks(values, said.int(), ends, forced), tokens, ancestors, config, pad=V - 1)

        at, next_one = expected.length, expected.prefix.gather(1, expected.length[:, None])[:, 0]
        both = (
            torch.cat([first[:, None], rest], dim=1).view(B, K, -1)
            for first, rest in ((ends, values), (torch.zeros_like(said[:, 0]), said))
        )
        held = enforce(*both, next_one, forced.view(B, K), at, expected.limit, config)
        alive = expected.alive()
        expected, rows, said = beam_step.settle(expected, *held, config, pad=V - 1)
        before = expected_ancestors[rows]
        expected_ancestors = before.where(
            torch.arange(W) < at.repeat_interleave(K)[:, None], rows[:, None].int()
        )

        assert found.ended.score.equal(expected.ended.score)
        assert found.ended.tokens.equal(expected.ended.tokens)
        assert found.ended.log_probs.equal(expected.ended.log_probs)
        for name in ("endings", "length", "margin"):
            assert getattr(found, name)[alive].equal(getattr(expected, name)[alive]), name
        assert found.live.score.equal(expected.live.score)
        live = expected.live.score > -math.inf
        assert found.live.tokens[live].equal(expected.live.tokens[live])
        assert found.live.log_probs[live].equal(expected.live.log_probs[live])
        assert tokens[live.flatten()].equal(said[live.flatten()])
        for row in live.flatten().nonzero().flatten().tolist():
            length = int(expected.length[row // K])
            assert ancestors[row, :length].equal(expected_ancestors[row, :length])
    assert not found.alive().any()


def test_hypotheses_longer_than_one_part_are_moved_whole():
    config = SearchConfig(beam_size=2, n_best=2, patience=math.inf, alpha=0.0)
    beams, draw = begin([W - 1], 9, config), torch.Generator().manual_seed(1)
    beams.live.tokens.random_(1, 9, generator=draw)
    beams.ended.tokens.random_(1, 9, generator=draw)
    beams.length.fill_(70)
    beams.live.score.copy_(torch.tensor([[-1.0, -2.0]]))
    beams.ended.score.copy_(torch.tensor([[-0.5, -9.0]]))
    before, ancestors = copy(beams), torch.arange(2 * W, dtype=torch.int32).view(2, W)
    values = torch.tensor([[-3.0, -9.0, -9.0, -math.inf], [-0.5, -9.0, -9.0, -math.inf]])
    picks = Picks(
        values, torch.full((2, 4), 5, dtype=torch.int32), torch.tensor([-9.0, -1.0]), torch.zeros(2)
    )
    settle(beams, picks, torch.zeros(2, dtype=torch.long), ancestors, config, pad=9)
    assert beams.live.tokens[0, :, :71].equal(
        torch.cat([before.live.tokens[0, [1, 0], :70], torch.full((2, 1), 5)], 1)
    )
    assert ancestors[:, :71].tolist() == [[*range(W, W + 70), 1], [*range(70), 0]]
    assert beams.ended.tokens[0, 0, :70].equal(before.ended.tokens[0, 0, :70])
    assert beams.ended.tokens[0, 1, :71].tolist() == [*before.live.tokens[0, 1, :70].tolist(), 0]


@pytest.mark.parametrize(
    ("patience", "goes_on"),
    [(1.0, False), (1.25, True), (1.5, True), (1e30, True), (math.inf, True)],
)
def test_a_search_is_over_when_enough_have_ended(patience, goes_on):
    """The second end comes behind a better hypothesis, which lives on if patience allows."""
    config = SearchConfig(beam_size=2, patience=patience, alpha=0.0)
    beams = begin([5], 9, config)
    beams.endings.fill_(1)
    beams.live.score.copy_(torch.tensor([[-1.0, -2.0]]))
    values = torch.tensor([[-3.0, -9.0, -9.0, -math.inf], [-0.5, -9.0, -9.0, -math.inf]])
    picks = Picks(
        values, torch.full((2, 4), 5, dtype=torch.int32), torch.tensor([-9.0, -1.0]), torch.zeros(2)
    )
    settle(
        beams,
        picks,
        torch.zeros(2, dtype=torch.long),
        torch.zeros(2, 6, dtype=torch.int32),
        config,
        pad=9,
    )
    assert beams.endings.tolist() == [2]
    assert beams.alive().tolist() == [goes_on]


def searchable(**changes):
    """A model for whole searches: one layer with one head, of which only the decoder's attention is fused.

    The interpreter takes its time, and a test above compares steps of all models.
    """
    model = build(N=1, h=1, **changes).float()
    for layer in model.decoder:
        accelerate(layer.self_attention, "cuda")
        accelerate(layer.cross_attention, "cuda")
    return model


SEARCHES = {
    "greedy": SearchConfig(beam_size=1, max_length=6),
    "beam": SearchConfig(beam_size=2, n_best=2, max_length=4),
    "no repetition": SearchConfig(beam_size=2, no_repeat_ngram=2, max_length=6),
    "samples": SearchConfig(temperature=1.0, top_k=5, n_best=2, max_length=6),
}


def jobs_of(sources, config, prefixes):
    return [
        Job(i, source, config.limit(len(source)), prefix, sentence_seed(config.seed, source))
        for i, (source, prefix) in enumerate(zip(sources, prefixes, strict=True))
    ]


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())
@torch.inference_mode()
def test_places_of_fixed_shape_find_the_same(config, monkeypatch):
    model, plain, chance = searchable(), build(N=1, h=1).float(), random.Random(1)
    sources = [[*chance.choices(range(2, 30), k=chance.randint(1, 40)), 0] for _ in range(4)]
    jobs = jobs_of(sources, config, [(), (3, 4), (), (5,)])
    monkeypatch.setattr(
        continuous_batching, "ROOM", 2 * 32 * config.width
    )  # few places: they are refilled
    assert fits(config) == (config.temperature == 0 and not config.no_repeat_ngram)

    def decode(tokens, cache):
        logits, cache = plain.decode(tokens[:, None], cache)
        return log_probabilities(logits[:, 0]), cache

    expected = []
    for job in jobs:
        cache = buffered(plain.encode(Tokens.padded([job.source], source_pad(model))))
        said = {"prefixes": [job.prefix], "seeds": [job.seed]}
        expected += search(decode, cache, [job.limit], model.config.pad, config, **said)
    kept = {}
    next(
        continuous_batching.search(model, jobs[::-1], config, kept)
    )  # and the rest is never asked for
    found = dict(continuous_batching.search(model, jobs, config, kept))
    assert ids(found[i] for i in range(4)) == ids(expected)
    for i, hypotheses in enumerate(expected):
        for ours, theirs in zip(found[i], hypotheses, strict=True):
            assert ours.score == pytest.approx(theirs.score, abs=1e-4)
            assert ours.token_log_probs == pytest.approx(theirs.token_log_probs, abs=1e-4)
            assert ours.margin == pytest.approx(theirs.margin, abs=1e-4)


class Arriving:
    """A feed in which each job arrives when an earlier one has been taken."""

    def __init__(self, jobs, unwanted=()):
        self.waiting, self.asked, self.unwanted = list(jobs), [], unwanted

    def longest(self):
        return len(self.waiting[0].source) if self.waiting else 0

    def take(self, count, longest):
        self.asked.append((count, longest))
        fitting = [job for job in self.waiting if len(job.source) <= longest][: min(count, 1)]
        for job in fitting:
            self.waiting.remove(job)
        return fitting

    def cancelled(self):
        return self.unwanted


@torch.inference_mode()
def test_jobs_join_a_running_search_and_leave_it_if_cancelled_and_find_the_same(monkeypatch):
    model, config = searchable(), SearchConfig(beam_size=2, max_length=2)
    sources = [[5, 6, 0], [*range(2, 8), 0], [7, 0], [8, 0]]
    jobs = jobs_of(sources, config, [(), (), (3,), ()])
    monkeypatch.setattr(continuous_batching, "STREAM_SOURCE", 4)
    monkeypatch.setattr(continuous_batching, "STREAM_PLACES", 2)
    feed = Arriving(jobs, unwanted=[3])
    found = dict(continuous_batching.stream(model, feed, config, {}))
    expected = dict(continuous_batching.search(model, jobs[:3], config, {}))
    assert ids(found[i] for i in range(3)) == ids(expected[i] for i in range(3))
    assert len(found) == 3
    assert {longest for _, longest in feed.asked} == {4, 8}  # two shapes, one after the other


@pytest.mark.parametrize(
    ("count", "steps"), [(1, slots.STEPS), (3, continuous_batching.STREAM_STEPS)]
)
@torch.inference_mode()
def test_a_stream_looks_less_often_for_finished_sentences_if_there_are_many(
    count, steps, monkeypatch
):
    config = SearchConfig(beam_size=1, min_length=5, max_length=5)
    jobs = jobs_of([[5, 6, 0]] * count, config, [()] * count)
    monkeypatch.setattr(continuous_batching, "STREAM_PLACES", 8)
    feed = MagicMock(longest=MagicMock(side_effect=[3, 0]), cancelled=tuple)
    feed.take.side_effect = [jobs, *[[]] * 9]
    kept = {}
    assert len(dict(continuous_batching.stream(searchable(), feed, config, kept))) == count
    (places,) = kept.values()
    rounds = {int(name.split()[0]) for name in places.graphs.recorded if name.endswith(" steps")}
    assert max(rounds) == steps


def test_a_graph_is_recorded_on_the_device_of_its_search(monkeypatch):
    recorded, device = [], torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", MagicMock)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(
        torch.cuda, "graph", lambda _, pool, stream, mode: nullcontext(recorded.append(stream))
    )
    recorder = graphs.Graphs(device)
    for _ in range(2):
        recorder.run("steps", lambda: None)
    assert recorded == [device]
    graphs._stream.cache_clear()


@torch.inference_mode()
def test_long_sources_take_room_even_if_little_is_said(monkeypatch):
    model, config, kept = searchable(), SearchConfig(beam_size=1, max_length=2), {}
    monkeypatch.setattr(continuous_batching, "ROOM", 3 * 64)
    list(
        continuous_batching.search(
            model, jobs_of([[5] * 50 + [0]] * 5, config, [()] * 5), config, kept
        )
    )
    assert [one.state.kept.shape[:2] for one in kept.values()] == [(3, 64)]


@torch.inference_mode()
def test_a_bad_prefix_and_an_empty_source_are_refused():
    model, config = searchable(), SearchConfig(max_length=3)
    with pytest.raises(InputError, match="end of sentence"):
        list(continuous_batching.search(model, jobs_of([[5, 0]], config, [(1, 0)]), config, {}))
    with pytest.raises(InputError, match="empty sequence"):
        list(continuous_batching.search(model, jobs_of([[]], config, [()]), config, {}))
    learned = searchable(positions="learned", max_positions=4)
    with pytest.raises(InputError, match="found a sequence of 5 tokens; learned positions end"):
        list(
            continuous_batching.search(
                learned, jobs_of([[5, 0], [5, 6, 7, 8, 0]], config, [(), ()]), config, {}
            )
        )
    assert (
        list(continuous_batching.search(model, [], config, {})) == []
    )  # nothing is asked, nothing is wrong


# The interpreter's, about what is not a number.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@torch.inference_mode()
def test_a_model_that_gives_no_number_is_named():
    model, config = searchable(), SearchConfig(max_length=3)
    model.target_embedding.weight.fill_(torch.nan)
    with pytest.raises(InputError, match="zero or NaN"):
        list(continuous_batching.search(model, jobs_of([[5, 0]], config, [()]), config, {}))


@torch.inference_mode()
def test_shapes_that_are_kept_make_room_for_a_new_one(monkeypatch):
    model, config, kept, tried, make = (
        searchable(),
        SearchConfig(beam_size=1, max_length=2),
        {},
        [],
        slots.Slots,
    )
    jobs = jobs_of([[5, 0]], config, [()])
    expected = dict(continuous_batching.search(model, jobs, config, {}))
    kept["another shape"], made = None, []

    def short_of_memory(*arguments):
        one = make(*arguments)  # what an error's frames keep
        tried.append((list(kept), [each() for each in made]))
        made.append(weakref.ref(one))
        if kept:
            raise torch.OutOfMemoryError
        return one

    monkeypatch.setattr(continuous_batching, "Slots", short_of_memory)
    assert dict(continuous_batching.search(model, jobs, config, kept)) == expected
    assert tried == [
        (["another shape"], []),
        ([], [None]),
    ]  # and nothing of the first attempt is left


def test_a_state_that_is_dropped_frees_its_memory_at_once():
    """Python's garbage collector may run too late: the next search needs the memory now."""
    gc.disable()
    try:
        state = FixedState(searchable(), torch.zeros(1, dtype=torch.long), 8, 1, 4)
        reference = weakref.ref(state)
        del state
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.slow  # in Triton's interpreter
@torch.inference_mode()
def test_a_search_that_runs_out_of_memory_goes_on_with_fewer_places(monkeypatch):
    model, sizes = searchable(), []
    config = SearchConfig(beam_size=2, min_length=9, max_length=9)
    jobs = jobs_of([[5, 7 + i, 0] for i in range(7)], config, [()] * 7)
    jobs[:3] = [job._replace(limit=1) for job in jobs[:3]]
    expected = dict(continuous_batching.search(model, jobs, config, {}))
    steps = slots.Slots._steps

    def short_of_memory(self, count):
        sizes.append(self.B)
        if self.B > 2 and sizes.count(self.B) > 2:  # when some sentences are done
            raise torch.OutOfMemoryError
        steps(self, count)

    monkeypatch.setattr(slots.Slots, "_steps", short_of_memory)
    found = list(continuous_batching.search(model, jobs, config, {}))
    assert list(dict.fromkeys(sizes)) == [8, 4, 2]
    sizes.clear()
    assert len(list(continuous_batching.search(model, jobs, config, {}))) == len(jobs)
    assert set(sizes) == {2}  # which had found room
    assert len(found) == len(jobs)  # nothing twice
    assert {number: [one.ids for one in each] for number, each in found} == {
        number: [one.ids for one in each] for number, each in expected.items()
    }
    monkeypatch.setattr(
        slots.Slots, "_steps", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError)
    )
    with pytest.raises(torch.OutOfMemoryError):
        list(continuous_batching.search(model, jobs, config, {}))


@torch.inference_mode()
def test_no_step_is_taken_that_nobody_needs(monkeypatch):
    """A sentence of n tokens and its end takes n + 1 steps, also where steps come two by two."""
    config = SearchConfig(beam_size=2, min_length=4, max_length=4)
    counts, steps = [], slots.Slots._steps
    monkeypatch.setattr(
        slots.Slots, "_steps", lambda self, count: [counts.append(count), steps(self, count)]
    )
    dict(
        continuous_batching.search(
            searchable(), jobs_of([[5, 6, 0], [7, 0]], config, [(), ()]), config, {}
        )
    )
    assert sum(counts) == 5
