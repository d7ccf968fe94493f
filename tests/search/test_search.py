"""The search against brute force, against a slow beam search over lists, and against itself in other batches."""

import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import SearchConfig
from transduce.errors import ConfigError, InputError
from transduce.search.beam_step import advance
from transduce.search.beams import begin
from transduce.search.candidates import best_tokens
from transduce.search.search import Ensemble, ensemble, results, search, sentence_seed

EOS, UNK = 0, 1
BEAMS = st.integers(1, 4)


# A language model by hand: any function of (sentence, what was said) to log-probabilities. Its state is what was said.


@dataclass(frozen=True)
class History:
    rows: tuple  # one (sentence, tokens said) for each row

    def select(self, rows):
        return History(tuple(self.rows[row] for row in rows.tolist()))


def start(sentences):
    return History(tuple((sentence, ()) for sentence in sentences))


def step_of(model, counter=None):
    def step(tokens, state):
        assert EOS not in tokens.tolist()  # nothing ever follows the end
        if counter is not None:
            counter.extend(sentence for sentence, _ in state.rows)
        rows = tuple(
            (sentence, (*said, token))
            for (sentence, said), token in zip(state.rows, tokens.tolist(), strict=True)
        )
        log_probs = torch.tensor(
            [model(sentence, said[1:]) for sentence, said in rows], device=tokens.device
        )
        return log_probs, History(rows)

    return step


@cache
def random_model(seed, V, ties=False):
    """Log-probabilities drawn anew for each history; with ties, from four values that add without rounding."""

    @cache
    def model(sentence, said):
        chance = random.Random(f"{seed} {sentence} {said}")
        if ties:
            return [chance.choice([-0.5, -1.0, -2.0, -4.0]) for _ in range(V)]
        return torch.tensor([chance.gauss(0, 2) for _ in range(V)]).log_softmax(0).tolist()

    return model


def run(model, limits, V, config, sentences=None, **options):
    sentences = range(len(limits)) if sentences is None else sentences
    return search(step_of(model), start(sentences), limits, V - 1, config, **options)


@pytest.mark.parametrize(
    "options", [{}, {"min_length": 3}, {"forbid_unk": True}, {"max_length": 2}]
)
@pytest.mark.parametrize("ties", [False, True])
def test_the_short_way_of_greedy_search_is_a_beam_of_one(options, ties):
    config, model = SearchConfig(beam_size=1, **options), random_model(7, 9, ties)
    limits = [config.limit(length) for length in range(12)]
    found = run(model, limits, 9, config)
    # Which needs the long way, and forbids nothing.
    beam = run(model, limits, 9, replace(config, max_repeats=99))
    assert [one._replace(margin=0) for (one,) in found] == [
        one._replace(margin=0) for (one,) in beam
    ]
    # Only what decides counts.
    assert all(a[0].margin > b[0].margin - 1e-5 for a, b in zip(found, beam, strict=True))
    assert ties or any(math.isfinite(one.margin) for (one,) in found)


# The oracle: beam search over lists, in the order a reader would write it, that never stops before all has ended.


def allowed(ids, V, limit, config, prefix):
    if len(ids) < len(prefix):
        return [prefix[len(ids)]]
    words = []
    for token in range(UNK + config.forbid_unk, V - 1):
        said, n, r = (*ids, token), config.no_repeat_ngram, config.max_repeats
        repeats = n and said[-n:] in [said[i : i + n] for i in range(len(said) - n)]
        loops = r and any(
            said[-p * (r + 1) :] == said[-p:] * (r + 1) for p in range(1, len(said) // (r + 1) + 1)
        )
        if not (repeats or loops or len(ids) >= limit):
            words.append(token)
    return [EOS, *words] if len(ids) >= min(config.min_length, limit) or not words else words


def penalty(length, alpha):
    return np.float32(((5 + length) / 6) ** alpha)


def oracle(model, sentence, V, limit, config, prefix=()):
    live, ended, K, steps = [((), np.float32(0))], [], config.beam_size, 0
    while live and len(ended) < config.patience * K:
        steps += 1
        candidates = []
        for parent, (ids, total) in enumerate(live):
            log_probs = np.array(model(sentence, ids), dtype=np.float32)
            for token in allowed(ids, V, limit, config, prefix):
                order = (
                    -(total + log_probs[token]),
                    parent,
                    token != EOS,
                    -log_probs[token],
                    token,
                )
                candidates.append((order, (*ids, token), total + log_probs[token]))
        candidates.sort()
        for _, ids, total in candidates[:K]:
            if ids[-1] == EOS:
                ended.append((list(ids[:-1]), total / penalty(len(ids), config.alpha)))
        live = [(ids, total) for _, ids, total in candidates if ids[-1] != EOS][:K]
    ended.sort(key=lambda item: -item[1])
    return [(ids, float(score)) for ids, score in ended[: config.n_best]], steps


def plain(hypotheses):
    return [(hypothesis.ids, hypothesis.score) for hypothesis in hypotheses]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("patience", [1.0, math.inf])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_beam_with_early_stopping_equals_a_list_of_hypotheses_that_never_stops_early(
    alpha, patience, ties
):
    chance = random.Random(f"{alpha} {patience} {ties}")
    steps, never_stopping = [], 0
    for beam_size in (1, 2, 3, 5):
        config = SearchConfig(
            beam_size=beam_size, alpha=alpha, patience=patience, n_best=min(2, beam_size)
        )
        V, limits = chance.choice([4, 6, 9]), [chance.randrange(6) for _ in range(80)]
        model = random_model(chance.random(), V, ties)
        found = search(step_of(model, steps), start(range(80)), limits, V - 1, config)
        for sentence, (limit, hypotheses) in enumerate(zip(limits, found, strict=True)):
            expected, slow_steps = oracle(model, sentence, V, limit, config)
            never_stopping += slow_steps * beam_size
            assert plain(hypotheses) == expected
    assert len(steps) < never_stopping  # and it does stop earlier


CONFIGS = st.builds(
    SearchConfig,
    beam_size=BEAMS,
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
    patience=st.sampled_from([1.0, 1.5, math.inf]),
    min_length=st.integers(0, 4),
    no_repeat_ngram=st.integers(0, 3),
    max_repeats=st.integers(0, 2),
    forbid_unk=st.booleans(),
)


@settings(deadline=None, max_examples=150)
@given(
    config=CONFIGS,
    V=st.integers(3, 7),
    ties=st.booleans(),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_every_constraint_equals_its_definition_in_the_slow_search(config, V, ties, seed, data):
    limits = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    tokens = st.integers(1, V - 2)
    prefixes = [data.draw(st.lists(tokens, max_size=min(limit, 4))) for limit in limits]
    model = random_model(seed, V, ties)
    found = run(model, limits, V, config, prefixes=prefixes)
    for sentence, (limit, prefix, hypotheses) in enumerate(
        zip(limits, prefixes, found, strict=True)
    ):
        assert plain(hypotheses) == oracle(model, sentence, V, limit, config, tuple(prefix))[0]
        assert hypotheses[0].ids[: len(prefix)] == prefix


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
    patience=st.sampled_from([1.0, math.inf]),
)
def test_a_beam_as_wide_as_the_search_space_finds_what_brute_force_finds(seed, alpha, patience):
    V, limit, model = 4, 3, random_model(seed, 4)
    everything = []
    for length in range(limit + 1):
        for ids in itertools.product([1, 2], repeat=length):
            parts = [model(0, ids[:i])[token] for i, token in enumerate((*ids, EOS))]
            everything.append((sum(parts) / ((5 + length + 1) / 6) ** alpha, list(ids), parts))
    everything.sort(reverse=True)
    config = SearchConfig(beam_size=15, n_best=15, alpha=alpha, patience=patience, min_length=0)
    (found,) = run(model, [limit], V, config)
    assert [hypothesis.ids for hypothesis in found] == [ids for _, ids, _ in everything]
    for hypothesis, (score, _, parts) in zip(found, everything, strict=True):
        assert hypothesis.score == pytest.approx(score, rel=1e-5)
        assert hypothesis.token_log_probs == pytest.approx(parts)
        assert hypothesis.log_prob == pytest.approx(sum(parts))


def test_a_beam_of_one_is_greedy():
    V, limits, model = 8, [7] * 100, random_model(3, 8)
    config = SearchConfig(beam_size=1, min_length=0)
    for sentence, (hypothesis,) in enumerate(run(model, limits, V, config)):
        ids = ()
        while len(ids) < 7 and (token := int(np.argmax(model(sentence, ids)[:-1]))) != EOS:
            ids = (*ids, token)
        assert tuple(hypothesis.ids) == ids


def test_a_hypothesis_worked_by_hand():
    """Two steps: "b" looks best at once, but "a" is followed by a certain end. alpha 1 prefers the longer one."""
    table = {
        (): [0.1, 0.0, 0.4, 0.5, 0.0],
        (2,): [1.0, 0, 0, 0, 0],
        (3,): [0.3, 0.0, 0.4, 0.3, 0.0],
    }

    def model(_, ids):
        return [math.log(p) if p else -math.inf for p in table.get(ids, [1.0, 0, 0, 0, 0])]

    greedy, beam = SearchConfig(beam_size=1), SearchConfig(beam_size=2, n_best=2, alpha=1.0)
    assert run(model, [4], 5, greedy)[0][0].ids == [3, 2]
    best, second = run(model, [4], 5, beam)[0]
    assert (best.ids, second.ids) == ([2], [3, 2])
    assert best.score == pytest.approx(math.log(0.4) / (7 / 6))
    assert second.score == pytest.approx(math.log(0.5 * 0.4) / (8 / 6))
    assert second.token_log_probs == pytest.approx([math.log(0.5), math.log(0.4), 0.0])


def test_the_n_best_are_ordered_and_distinct():
    for hypotheses in run(random_model(5, 7), [6] * 50, 7, SearchConfig(beam_size=4, n_best=4)):
        assert len(hypotheses) == 4
        assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == 4
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)


VARIANTS = [
    SearchConfig(),
    SearchConfig(beam_size=1),
    SearchConfig(beam_size=3, n_best=3, no_repeat_ngram=2, max_repeats=2),
    SearchConfig(temperature=0.8, n_best=2),
    SearchConfig(temperature=1.3, top_k=3, top_p=0.9, min_length=2),
]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("config", VARIANTS)
def test_a_sentence_does_not_see_its_neighbours(config, ties):
    chance, V, model = random.Random(7), 9, random_model(7, 9, ties)
    limits = [chance.randrange(1, 8) for _ in range(24)]
    prefixes = [[2, 3][: chance.randrange(min(limit, 2) + 1)] for limit in limits]
    seeds = [sentence_seed(config.seed, [sentence]) for sentence in range(24)]

    def translate(sentences):
        own = {
            name: [values[s] for s in sentences]
            for name, values in (("prefixes", prefixes), ("seeds", seeds))
        }
        found = run(model, [limits[s] for s in sentences], V, config, sentences, **own)
        # Counts more beside prefixes.
        return [[one._replace(margin=0.0) for one in hypotheses] for hypotheses in found]

    alone = {sentence: translate([sentence])[0] for sentence in range(24)}
    for _ in range(5):
        batch = chance.choices(range(24), k=chance.randrange(1, 24))
        assert translate(batch) == [alone[sentence] for sentence in batch]


def test_refilled_places_find_what_a_fresh_search_finds():
    """An engine with three places: the next sentence takes the place of one that is done."""
    config, V, chance = SearchConfig(beam_size=2, n_best=2), 8, random.Random(2)
    model, limits = random_model(11, V), [chance.randrange(7) for _ in range(20)]
    step, waiting, found = step_of(model), list(range(3, 20)), {}
    places, rows = [0, 1, 2], torch.arange(6)
    beams = begin(limits[:3], V - 1, config, capacity=7)
    state, tokens = start([0, 0, 1, 1, 2, 2]), torch.full((6,), V - 1)
    while any(place is not None for place in places):
        log_probs, state = step(tokens, state.select(rows))
        beams, rows, tokens = advance(beams, log_probs, config)
        states = list(state.rows)
        for place in (~beams.alive()).nonzero().flatten().tolist():
            if places[place] is not None:
                found[places[place]] = results(beams.select(torch.tensor([place])))[0]
            places[place] = waiting.pop(0) if waiting else None
            if places[place] is not None:
                fresh = begin([limits[places[place]]], V - 1, config, capacity=7)
                beams.put(torch.tensor([place]), fresh)
                for row in (2 * place, 2 * place + 1):
                    states[row], rows[row], tokens[row] = (places[place], ()), row, V - 1
        # A refilled row starts over: nothing else may read its old state, which `rows` never asks for across sentences.
        state = History(tuple(states))
    assert [found[sentence] for sentence in range(20)] == run(model, limits, V, config)


@pytest.mark.parametrize("config", VARIANTS)
def test_a_step_keeps_its_shapes_and_never_looks_at_a_value(config):
    beams = begin([5, 3], 1999, config, device="meta")  # tensors without values
    log_probs = torch.empty(2 * config.width, 2000, device="meta")
    moved, rows, tokens = advance(beams, log_probs, config)
    assert rows.shape == tokens.shape == (2 * config.width,)
    shapes = [[(t.shape, t.dtype) for t in vars(b.live).values()] for b in (beams, moved)]
    assert shapes[0] == shapes[1]
    assert [t.shape for t in vars(moved.ended).values()] == [
        t.shape for t in vars(beams.ended).values()
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("config", VARIANTS)
def test_a_gpu_and_a_replayed_graph_find_what_the_cpu_finds(config):
    V, limits = 2000, [9, 4, 6, 0, 12]
    model = random_model(13, V, ties=True)
    assert run(model, limits, V, config, device="cuda") == run(model, limits, V, config)

    beams = begin(limits, V - 1, config, device="cuda")
    log_probs = torch.randn(5 * config.width, V, device="cuda").log_softmax(-1)
    expected = advance(beams, log_probs, config)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        captured = advance(beams, log_probs, config)
    graph.replay()
    assert captured[1].equal(expected[1])
    assert captured[2].equal(expected[2])
    assert captured[0].live.score.equal(expected[0].live.score)


def test_padding_is_never_said_and_lengths_are_held():
    loves_padding = random_model(1, 5)

    def model(sentence, ids):
        return [*loves_padding(sentence, ids)[:-1], 0.0]

    config = SearchConfig(
        beam_size=3, n_best=3, min_length=2, max_length=4, max_extra=50, forbid_unk=True
    )
    for hypotheses in run(model, [config.limit(9)] * 30, 5, config):
        for hypothesis in hypotheses:
            assert 2 <= len(hypothesis.ids) <= 4
            assert set(hypothesis.ids) <= {2, 3}


def test_the_limit_is_the_input_and_so_much_more():
    assert SearchConfig(max_extra=50).limit(7) == 57
    assert SearchConfig(max_extra=50, max_length=20).limit(7) == 20
    assert SearchConfig(max_extra=0, min_length=10).limit(7) == 10


def test_samples_repeat_with_their_seed_and_follow_the_distribution():
    def model(_, ids):  # 0.2 the end at once, 0.5 and 0.3 two words that end
        p = [1.0, 0.0, 0.0, 0.0, 0.0] if ids else [0.2, 0.0, 0.5, 0.3, 0.0]
        return [math.log(value) if value else -math.inf for value in p]

    def shares(config):
        found = run(model, [3] * 4000, 5, config, seeds=range(4000))
        assert found == run(model, [3] * 4000, 5, config, seeds=range(4000))
        assert found != run(model, [3] * 4000, 5, config, seeds=range(1, 4001))
        counts = Counter(tuple(hypothesis.ids) for hypotheses in found for hypothesis in hypotheses)
        return [counts[ids] / 4000 for ids in ((), (2,), (3,))]

    sampling = SearchConfig(temperature=1.0, min_length=0)
    assert shares(sampling) == pytest.approx([0.2, 0.5, 0.3], abs=0.03)
    assert shares(replace(sampling, top_k=2)) == pytest.approx([0, 0.625, 0.375], abs=0.03)
    assert shares(replace(sampling, top_p=0.79)) == pytest.approx([0, 0.625, 0.375], abs=0.03)
    assert shares(replace(sampling, top_p=0.81)) == pytest.approx([0.2, 0.5, 0.3], abs=0.03)
    assert shares(replace(sampling, temperature=0.5)) == pytest.approx(
        [0.04 / 0.38, 0.25 / 0.38, 0.09 / 0.38], abs=0.03
    )


def test_several_samples_of_a_sentence_are_independent_and_their_seed_comes_from_its_tokens():
    config = SearchConfig(temperature=1.0, n_best=5)
    (samples,) = run(random_model(4, 9), [8], 9, config, seeds=[sentence_seed(1, [5, 6])])
    assert len(samples) == 5
    assert len({tuple(sample.ids) for sample in samples}) > 1
    assert sentence_seed(1, [5, 6]) == sentence_seed(1, [5, 6]) != sentence_seed(2, [5, 6])
    assert sentence_seed(1, [5, 6]) != sentence_seed(1, [6, 5])


def test_a_hypothesis_keeps_its_own_state():
    """A Markov chain as the model, whose state is the last token: a wrongly selected row changes the result."""
    tables = torch.randn(30, 8, 8, generator=torch.Generator().manual_seed(1)).log_softmax(-1)

    @dataclass(frozen=True)
    class Last:
        sentence: torch.Tensor
        token: torch.Tensor

        def select(self, rows):
            return Last(self.sentence[rows], self.token[rows])

    def step(tokens, state):
        # Says what follows the token before; what was chosen now is only remembered.
        following = torch.where(tokens == 7, state.token, tokens)
        return tables[state.sentence, following], Last(state.sentence, following)

    config = SearchConfig(beam_size=4, n_best=2)
    found = search(step, Last(torch.arange(30), torch.full((30,), 7)), [6] * 30, 7, config)
    for sentence, hypotheses in enumerate(found):

        def model(s, ids):
            return tables[s, ids[-1] if ids else 7].tolist()

        assert plain(hypotheses) == oracle(model, sentence, 8, 6, config)[0]


def test_an_ensemble_of_twins_is_the_single_one_and_of_strangers_their_mean():
    V, limits, config = 6, [5] * 20, SearchConfig(beam_size=3)
    one, other = random_model(21, V), random_model(22, V)
    twins = search(
        ensemble([step_of(one)] * 2), Ensemble((start(range(20)),) * 2), limits, V - 1, config
    )
    for (twin,), (single,) in zip(twins, run(one, limits, V, config), strict=True):
        assert twin.ids == single.ids
        assert twin.score == pytest.approx(single.score, rel=1e-5)

    def mean(sentence, ids):
        return np.log(
            np.mean([np.exp(one(sentence, ids)), np.exp(other(sentence, ids))], axis=0)
        ).tolist()

    both = ensemble([step_of(one), step_of(other)])
    strangers = search(both, Ensemble((start(range(20)), start(range(20)))), limits, V - 1, config)
    assert [h.ids for (h,) in strangers] == [h.ids for (h,) in run(mean, limits, V, config)]


@pytest.mark.parametrize("V", [640, 1000, 1024, 37_000])
@pytest.mark.parametrize("levels", [3, 40, 10**9])
def test_the_best_tokens_are_those_of_a_stable_sort(V, levels):
    draw = torch.Generator().manual_seed(V + levels)
    log_probs = -torch.randint(levels, (5, V), generator=draw).float() / 7
    log_probs[0] = -torch.inf
    log_probs[1, -1] = 0.0  # a best one at the very end, behind which the last block is cut short
    values, ids = best_tokens(log_probs, 7)
    expected = log_probs.sort(dim=1, descending=True, stable=True)
    assert values.equal(expected.values[:, :7])
    assert ids[1:].equal(expected.indices[1:, :7])


def test_a_log_probability_rounded_above_zero_cannot_raise_a_score():
    for (hypothesis,) in run(
        lambda *_: [-0.1, 1e-3, -1e-3, -5.0], [4] * 3, 4, SearchConfig(beam_size=2, min_length=1)
    ):
        assert max(hypothesis.token_log_probs) == 0.0
        assert hypothesis.score <= 0.0


def test_an_empty_batch_an_empty_sentence_and_a_limit_of_nothing():
    model = random_model(1, 5)
    assert run(model, [], 5, SearchConfig()) == []
    assert run(model, [0], 5, SearchConfig())[0][0].ids == []


def test_a_broken_model_and_an_impossible_prefix_are_named():
    with pytest.raises(InputError, match="zero or NaN"):
        run(lambda *_: [math.nan] * 5, [3], 5, SearchConfig())
    with pytest.raises(InputError, match="zero or NaN"):
        run(lambda *_: [-math.inf] * 5, [3], 5, SearchConfig())
    with pytest.raises(InputError, match="has 4 tokens"):
        run(random_model(1, 5), [3], 5, SearchConfig(), prefixes=[[1, 2, 1, 2]])
    with pytest.raises(InputError, match="end of sentence"):
        run(random_model(1, 5), [3], 5, SearchConfig(), prefixes=[[1, 0]])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam_size": 0}, "beam_size is 0"),
        ({"alpha": -0.5}, "alpha is -0.5"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"min_length": 5, "max_length": 4}, "but search.max_length is 4"),
        ({"n_best": 5}, "raise search.beam_size"),
        ({"beam_size": 100_000}, "beam_size is 100,000; it must be at most 1,000"),
        (
            {"n_best": 1001, "temperature": 1.0},
            "search.n_best is 1,001; it must be at most 1,000",
        ),
        ({"max_extra": 10**30}, "it must be at most 1,000,000"),
        ({"alpha": 1e6}, r"search.alpha is 1000000.0; it must be at most 10"),
        ({"patience": 0.25, "n_best": 2}, "patience 0.25"),
        ({"top_k": 5}, "set it to 1.0 to sample"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p is 0.0"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram is -1"),
    ],
)
def test_contradictory_settings_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        SearchConfig(**wrong)
