"""The torch engine: fast paths equal the plain one, and no sentence depends on its neighbours."""

import itertools
import mmap
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
import torch

from tests.model.conftest import SOURCES, VARIANTS, build
from transduce.config import ModelConfig, SearchConfig
from transduce.data.tokenizer import Tokenizer
from transduce.engines import model_calls
from transduce.engines import torch as engines
from transduce.engines.buffers import buffered
from transduce.engines.model_calls import log_probabilities
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import ConfigError
from transduce.kernels import cpu
from transduce.kernels.accelerate import accelerate
from transduce.kernels.cpu import LARGE_PAGE, MADV_COLLAPSE
from transduce.model import Tokens, Transformer
from transduce.search.hypothesis import Job
from transduce.search.search import search, sentence_seed
from transduce.translation.translator import Translator

SEARCHES = {
    "greedy": SearchConfig(beam_size=1, max_extra=6),
    "beam": SearchConfig(n_best=3, max_extra=6),
    "no repetition": SearchConfig(beam_size=2, no_repeat_ngram=2, max_extra=20),
    "samples": SearchConfig(temperature=1.0, top_k=5, n_best=2, max_extra=6),
}


def source_pad(model):
    return (model.config.source_vocab_size or model.config.vocab_size) - 1


def searched_plainly(model, sources, config):
    """`search` over `Transformer.decode`, one sentence at a time."""

    def decode(tokens, state):
        logits, state = model.decode(tokens[:, None], state)
        return log_probabilities(logits[:, 0]), state

    found = []
    for source in sources:
        state = model.encode(Tokens.padded([source], source_pad(model)))
        seeds = [sentence_seed(config.seed, source)]
        found += search(
            decode, state, [config.limit(len(source))], model.config.pad, config, seeds=seeds
        )
    return found


def ids(found):
    return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@torch.inference_mode()
def test_a_step_with_buffers_equals_decode(changes):
    model, chance = build(**changes), torch.Generator().manual_seed(0)
    source = Tokens.padded(SOURCES, source_pad(model))
    rows = torch.arange(len(SOURCES)).repeat_interleave(3)
    state, cache = model.encode(source).select(rows), buffered(model.encode(source)).select(rows)
    tokens = torch.full((len(rows),), model.config.pad)
    for time in range(36):  # past the first buffers' capacity
        expected, state = model.decode(tokens[:, None], state)
        logits, cache = model.decode(tokens[:, None], cache)
        torch.testing.assert_close(logits, expected)
        sentences = len(tokens) // 3
        rows = torch.arange(sentences)[:, None] * 3 + torch.randint(
            3, (sentences, 3), generator=chance
        )
        rows = rows[1:] if time == 10 else rows  # a sentence has ended
        state, cache = state.select(rows.flatten()), cache.select(rows.flatten())
        tokens = torch.randint(model.config.vocab_size - 1, (rows.numel(),), generator=chance)


def test_threads_search_one_after_the_other(monkeypatch):
    """A model in training is set back by the search that set it; and on a GPU searches share their places."""
    model, steps, together = build(N=1).train(), [], threading.Barrier(4)
    engine = TorchEngine(model)

    def slow(tokens, state):
        sleep(0.01)
        steps.append((threading.get_ident(), model.training))
        return model_calls.next_token(model, tokens, state)

    def search(length):
        together.wait()
        engine.search(SOURCES[:1], SearchConfig(min_length=length, max_length=length))

    monkeypatch.setattr(engines, "partial", lambda *_: slow)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(search, (2, 3, 4, 5)))
    turns = [thread for thread, _ in itertools.groupby(thread for thread, _ in steps)]
    assert len(turns) == len(set(turns)) == 4
    assert not any(training for _, training in steps)


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="nothing is packed without oneDNN"
)
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("least", [0, 10**9], ids=["packed", "small"])
@torch.inference_mode()
def test_a_packed_model_gives_the_same_numbers(changes, least, monkeypatch):
    monkeypatch.setattr(cpu, "LEAST", least)
    model, unpacked, rows = build(**changes).float(), build(**changes).float(), torch.arange(4)
    source = Tokens.padded(SOURCES, source_pad(model))
    target = Tokens.padded([[5, 6, 7], [8], [9, 3], [4]], model.config.pad)
    packed = model
    accelerate(packed, frozen=True)
    assert [*packed.state_dict()] == [*unpacked.state_dict()]
    torch.testing.assert_close(packed(source, target), unpacked(source, target))
    for count in (1, 2, 3, 4):  # rows of a step are filled up
        one = Tokens.padded(SOURCES[:count], source_pad(model))
        got, expected = (
            each.decode(rows[:count, None], buffered(each.encode(one)))[0]
            for each in (packed, unpacked)
        )
        torch.testing.assert_close(got, expected)


def has_large_pages():
    if sys.platform != "linux" or not torch.backends.mkldnn.is_available():
        return False
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    # They are there without being asked for.
    if not setting.exists() or "[always]" in setting.read_text():
        return False
    with mmap.mmap(-1, 2 * LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes(len(memory)))
        try:
            memory.madvise(MADV_COLLAPSE)
        except OSError:
            return False
    return True


def large_pages():
    """How many of them this process has."""
    sizes = dict(
        line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    )
    return int(sizes["AnonHugePages"].split()[0]) * 1024 // LARGE_PAGE


@pytest.mark.skipif(not has_large_pages(), reason="this system joins no pages of memory")
def test_packed_matrices_come_to_lie_in_large_pages():
    model, before = (
        build(vocab_size=2**19, N=1).float(),
        large_pages(),
    )  # too large for memory that was used before
    inside = model.output_weight.nbytes // LARGE_PAGE - 1
    accelerate(model, frozen=True)
    deadline = monotonic() + 20
    while large_pages() < before + inside and monotonic() < deadline:
        sleep(0.01)
    assert large_pages() >= before + inside


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())
@torch.inference_mode()
def test_the_engine_finds_what_a_plain_search_finds(config):
    model = build()
    expected = searched_plainly(model, SOURCES, config)
    assert ids(TorchEngine(model).search(SOURCES, config)) == ids(expected)


def test_weights_that_change_are_searched_as_they_are(monkeypatch):
    """This includes an engine that has packed the weights."""
    monkeypatch.setattr(cpu, "LEAST", 0)
    model, config = build().float(), SearchConfig(beam_size=2, max_length=6)
    engine, sources = TorchEngine(model, frozen=True), SOURCES
    before = ids(engine.search(sources, config))
    model.load_state_dict(build(seed=1).float().state_dict())
    found = ids(engine.search(sources, config))
    assert found == ids(TorchEngine(build(seed=1).float()).search(sources, config)) != before


def test_graphs_are_dropped_where_a_model_changes(caplog):
    """On a GPU: here without one, and without a search."""
    pytest.importorskip("triton")
    model = build(N=1).float()
    engine = TorchEngine(model)
    engine.device = torch.device("cuda")
    changes = {
        "nothing": (lambda: None, True),
        "weights moved": (
            lambda: model.load_state_dict(build(N=1).float().state_dict(), assign=True),
            False,
        ),
        "weights written": (lambda: model.output_weight.data.mul_(2), True),
        "a hook": (lambda: model.decoder[0].register_forward_hook(lambda *_: None), False),
        "a part": (lambda: setattr(model.encoder[0], "feed_forward", torch.nn.Tanh()), False),
        "nothing more": (lambda: None, True),
    }
    engine._accelerate()
    assert engine._deviation is None
    for change, kept in changes.values():
        engine._graphs["a shape"] = "its graphs"
        change()
        engine._accelerate()
        assert bool(engine._graphs) == kept
    assert "Tanh" in engine._deviation
    assert [record.message.partition(")")[0] for record in caplog.records] == [
        "the model is not a standard Transformer (decoder.0: hooks",
        "the model is not a standard Transformer (encoder.0.feed_forward: its class is Tanh",
    ]


def undecided():
    """A float32 model whose tokens come in pairs that differ by less than rounding does."""
    torch.manual_seed(3)
    model = Transformer(
        ModelConfig(vocab_size=402, N=2, d_model=64, d_ff=128, h=4, d_k=16, d_v=16, p_drop=0.0)
    )
    weight = model.target_embedding.weight.data
    weight[1:400:2] = weight[0:400:2] * (1 + 2e-7 * torch.randn(200, 64))
    return model.eval()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_does_not_depend_on_its_neighbours(beam_size):
    chance = random.Random(2)
    sources = [[*chance.choices(range(2, 400), k=chance.randint(1, 30)), 0] for _ in range(60)]
    engine, config = TorchEngine(undecided()), SearchConfig(beam_size=beam_size, max_length=6)
    alone = ids(engine.search([source], config)[0] for source in sources)
    assert ids(engine.search(sources, config)) == alone
    order = list(range(60))
    chance.shuffle(order)
    some = engine.search([sources[i] for i in order[:25]], config)
    assert ids(some) == [alone[i] for i in order[:25]]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_trained_model_translates_alone_as_in_batches(bundle, sentences, beam_size):
    count = 60
    tokenizer = Tokenizer(bundle.tokenizer_files["tokenizer.model"])
    sources = tokenizer.encode_batch(sentences[:count])
    engine, config = (
        TorchEngine(load_model(bundle), frozen=True),
        SearchConfig(beam_size=beam_size, max_extra=10),
    )
    together = engine.search(sources, config)
    alone = [engine.search([source], config)[0] for source in sources]
    assert ids(together) == ids(alone)
    # A margin that numbers can cross would be no margin.
    for some, one in zip(together, alone, strict=True):
        assert abs(some[0].score - one[0].score) < engines.NOISE / 5


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_thousand_sentences_translate_alone_as_in_random_batches(bundle, sentences, beam_size):
    tokenizer = Tokenizer(bundle.tokenizer_files["tokenizer.model"])
    sources = tokenizer.encode_batch(sentences[:1000])
    engine, config = (
        TorchEngine(load_model(bundle), frozen=True),
        SearchConfig(beam_size=beam_size, max_extra=20),
    )
    alone = ids(engine.search([source], config)[0] for source in sources)
    chance = random.Random(4)
    order = list(range(1000))
    for _ in range(3):
        chance.shuffle(order)
        start = 0
        while start < 1000:
            batch = order[start : start + chance.choice([1, 2, 3, 7, 40, 150])]
            assert ids(engine.search([sources[i] for i in batch], config)) == [
                alone[i] for i in batch
            ]
            start += len(batch)


def test_padding_is_never_said_and_takes_no_probability():
    model = build(output_bias=True)
    model.output_bias.data[-1] = 50.0
    logits = torch.randn(2, 31)
    logits[:, -1] = 50.0
    log_probs = log_probabilities(logits.clone())
    torch.testing.assert_close(log_probs[:, :-1].exp().sum(-1), torch.ones(2))
    found = TorchEngine(model).search(SOURCES, SearchConfig(beam_size=2, max_length=4))
    assert all(30 not in hypothesis.ids for hypotheses in found for hypothesis in hypotheses)


def test_a_forced_prefix_begins_the_output():
    found = TorchEngine(build()).search(
        SOURCES, SearchConfig(max_extra=4), prefixes=[[5], [], [7, 8], [3]]
    )
    assert [
        one[0].ids[:2][: len(want)] for one, want in zip(found, [[5], [], [7, 8], [3]], strict=True)
    ] == [
        [5],
        [],
        [7, 8],
        [3],
    ]


def test_a_model_in_training_goes_on_training():
    model = build(p_drop=0.5).train()
    engine, config = TorchEngine(model), SearchConfig(max_extra=4)
    assert ids(engine.search(SOURCES, config)) == ids(engine.search(SOURCES, config))
    assert model.training


def test_batches_hold_everything_once_and_keep_to_the_budget():
    config = SearchConfig(beam_size=4)
    jobs = [
        Job(i, [0] * n, config.limit(n), (), 0)
        for i, n in enumerate([5, 900, 70, 3, 5000, 12] * 30)
    ]
    made = list(engines.batches(jobs, config))
    assert sorted(job.number for batch in made for job in batch) == list(range(180))
    for batch in made:
        worst = max(len(job.source) + 4 * job.limit for job in batch)
        assert len(batch) == 1 or len(batch) * worst <= engines.BATCH_TOKENS


def test_half_precision_says_nearly_the_same(bundle, sentences):
    tokenizer = Tokenizer(bundle.tokenizer_files["tokenizer.model"])
    sources = tokenizer.encode_batch(sentences[:40])
    config = replace(SearchConfig(), beam_size=1, max_extra=10)
    whole = ids(TorchEngine(load_model(bundle)).search(sources, config))
    half = ids(TorchEngine(load_model(bundle, dtype=torch.bfloat16)).search(sources, config))
    assert sum(a == b for a, b in zip(whole, half, strict=True)) >= 20


@pytest.mark.parametrize(
    "name", ["tpu9", "cuda:99", "meta", "mps", "xla", "privateuseone", "", "cpu cpu", "None"]
)
def test_a_device_that_is_not_there_is_one_line_with_those_that_are(name, bundle):
    if name == "mps" and torch.backends.mps.is_available():
        pytest.skip("it is there")
    message = rf"^device is '{name}', which \w+ cannot use here( \([^\n]{{1,100}}\))?; available: cpu(, cuda:\d+)*$"
    with pytest.raises(ConfigError, match=message):
        engines.resolve_device(name)
    pytest.importorskip("ctranslate2")
    with pytest.raises(ConfigError, match=message):
        Translator(bundle, engine="ctranslate2", device=name)


def test_a_device_that_is_there_is_taken():
    assert engines.resolve_device("cpu:1") == engines.resolve_device("cpu") == torch.device("cpu")
