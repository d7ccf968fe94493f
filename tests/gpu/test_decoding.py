"""On CUDA: replayed graphs find what the CPU finds, for every option and model, in any batch."""

import gc
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.model.conftest import VARIANTS
from tests.trained import splits, train
from transduce.config import ModelConfig, SearchConfig
from transduce.engines.torch import TorchEngine
from transduce.model import Transformer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

V = 1003
SEARCHES = {
    "greedy": SearchConfig(beam_size=1, max_extra=10),
    "beam": SearchConfig(max_extra=10),
    "n-best": SearchConfig(
        beam_size=5, n_best=3, patience=2.0, min_length=3, forbid_unk=True, max_extra=10
    ),
    "widest": SearchConfig(beam_size=8, n_best=8, max_extra=10),
    "wider": SearchConfig(beam_size=12, max_extra=10),
    "no repetition": SearchConfig(beam_size=2, no_repeat_ngram=2, max_repeats=1, max_extra=10),
    "samples": SearchConfig(temperature=1.0, top_k=50, top_p=0.9, n_best=2, max_extra=10),
}


def build(seed=0, **changes):
    """Make a model of random weights with clear decisions: its logits are three times as wide."""
    torch.manual_seed(seed)
    shape = {
        "vocab_size": V,
        "N": 2,
        "d_model": 64,
        "d_ff": 128,
        "h": 4,
        "d_k": 16,
        "d_v": 16,
        "p_drop": 0.0,
    }
    model = Transformer(ModelConfig(**{**shape, "sharing": "none", **changes}))
    output = model.output if model.output is not None else model.target_embedding
    output.weight.data *= 3
    output.weight.data[0] *= 1.5  # and an end comes
    return model.eval().requires_grad_(False)


def some_sources(count, longest=70, seed=1):
    chance = random.Random(seed)
    return [[*chance.choices(range(2, 900), k=chance.randint(1, longest)), 0] for _ in range(count)]


def ids(found):
    return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_gpu_finds_what_the_cpu_finds(config):
    model, sources = build(), some_sources(40)
    prefixes = [[5, 6, 7][: i % 4] for i in range(40)]
    expected = TorchEngine(model).search(sources, config, prefixes=prefixes)
    engine = TorchEngine(model.cuda(), device="cuda")
    for _ in range(3):  # warming up, recording, replaying
        found = engine.search(sources, config, prefixes=prefixes)
        assert ids(found) == ids(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0].score == pytest.approx(theirs[0].score, abs=1e-3)
        assert ours[0].token_log_probs == pytest.approx(theirs[0].token_log_probs, abs=1e-3)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_every_model_is_searched(changes):
    wide = {"source_vocab_size": 905, "max_positions": 200}  # enough for the sources
    changes = {name: wide.get(name, value) for name, value in changes.items()}
    model, sources, config = build(**changes), some_sources(12), SearchConfig(max_extra=10)
    expected = ids(TorchEngine(model).search(sources, config))
    engine = TorchEngine(model.cuda(), device="cuda")
    assert [ids(engine.search(sources, config)) for _ in range(3)] == [expected] * 3


def test_heads_of_any_size_are_searched():
    config = SearchConfig(max_extra=10)
    for sizes in (
        {"d_k": 24, "d_v": 6},
        {"h": 1, "d_k": 512, "d_v": 512},
        {"h": 2, "d_k": 128, "d_v": 64},
    ):
        model, sources = build(**sizes), some_sources(8)
        expected = ids(TorchEngine(model).search(sources, config))
        assert ids(TorchEngine(model.cuda(), device="cuda").search(sources, config)) == expected


def test_a_thousand_samples_are_drawn_at_once():
    model = build(d_k=64, d_v=64).cuda()
    (found,) = TorchEngine(model, device="cuda").search(
        [[5, 6, 0]], SearchConfig(temperature=1.0, n_best=1000)
    )
    assert len(found) == 1000


def test_threads_may_share_an_engine():
    sources, config = some_sources(60), SearchConfig(max_extra=10)
    engine = TorchEngine(build().cuda(), device="cuda")
    expected = ids(engine.search(sources, config))
    with ThreadPoolExecutor(4) as threads:
        assert (
            list(threads.map(lambda _: ids(engine.search(sources, config)), range(4)))
            == [expected] * 4
        )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_every_device_is_searched_by_one_process():
    sources, config = some_sources(12), SearchConfig(max_extra=10)
    expected = ids(TorchEngine(build()).search(sources, config))
    for device in ("cuda:0", "cuda:1"):
        engine = TorchEngine(build().to(device), device=device)
        assert [ids(engine.search(sources, config)) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("count", [1, 2, 3, 7, 33])
def test_batches_of_any_size_share_what_was_recorded(count):
    model, config = build().cuda(), SearchConfig(max_extra=10)
    engine, sources = TorchEngine(model, device="cuda"), some_sources(33, longest=20)
    alone = [ids(engine.search([source], config))[0] for source in sources[:count]]
    assert [ids(engine.search(sources[:count], config)) for _ in range(3)] == [alone] * 3


def test_a_place_that_is_free_takes_the_next_sentence(monkeypatch):
    from transduce.engines.cuda import continuous_batching

    model, sources, config = build(), some_sources(100), SearchConfig(max_extra=10)
    expected = ids(TorchEngine(model).search(sources, config))
    monkeypatch.setattr(continuous_batching, "ROOM", 8 * 4 * 96)
    engine = TorchEngine(model.cuda(), device="cuda")
    assert [ids(engine.search(sources, config)) for _ in range(2)] == [expected] * 2


def test_a_model_that_learns_between_searches_is_searched_as_it_is():
    model, sources, config = build().cuda(), some_sources(8), SearchConfig(max_extra=10)
    engine = TorchEngine(model, device="cuda")
    for seed in range(3):
        model.load_state_dict(build(seed).state_dict())
        expected = ids(TorchEngine(build(seed)).search(sources, config))
        assert [ids(engine.search(sources, config)) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("room", [100, 280, 290, 300, 320])
def test_a_search_for_which_memory_is_short_finds_the_same(room):
    """256 places need 268 MiB of keys and values.

    With less memory they cannot be allocated; with little more, no graph can be captured.
    """
    model, config = build(d_model=256, d_ff=256, d_k=64, d_v=64), SearchConfig(max_extra=10)
    sources = some_sources(256, longest=20)
    expected = ids(TorchEngine(model).search(sources, config))
    engine = TorchEngine(model.cuda(), device="cuda")
    engine.search(sources[:1], config)  # libraries and kernels take room of their own
    engine._graphs.clear()
    gc.collect()
    torch.cuda.empty_cache()
    (_, total), used = torch.cuda.mem_get_info(), torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((used + room * 2**20) / total)
    try:
        assert [ids(engine.search(sources, config)) for _ in range(3)] == [expected] * 3
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert room > 268 or max(B for _, B, _, _ in engine._graphs) < 256


@pytest.fixture(scope="module")
def trained():
    model, tokenizer, _ = train()
    held_out = splits()
    texts = [
        source for source, _ in (held_out["valid"] + held_out["test"] + held_out["train"])[:1000]
    ]
    return model.eval().requires_grad_(False).cuda().bfloat16(), tokenizer.encode_batch(texts)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_in_bf16_a_thousand_sentences_are_translated_alone_as_in_a_batch(trained, beam_size):
    model, sources = trained
    engine, config = (
        TorchEngine(model, device="cuda"),
        SearchConfig(beam_size=beam_size, max_extra=10),
    )
    together = ids(engine.search(sources, config))
    alone = [ids(engine.search([source], config))[0] for source in sources]
    assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 999
