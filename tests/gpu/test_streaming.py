"""On CUDA: sentences that arrive while others are searched find what they find in one batch."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.gpu.test_decoding import build, ids, some_sources
from transduce.config import SearchConfig
from transduce.engines.torch import NOISE, TorchEngine, make_job
from transduce.serving.queue.batching import BatchingEngine
from transduce.serving.queue.caller import Caller, calling
from transduce.serving.queue.turns import QueueSettings
from transduce.serving.refusals import Cancelled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SEARCHES = {
    "greedy": SearchConfig(beam_size=1, max_extra=10),
    "beam": SearchConfig(max_extra=10),
    "no repetition": SearchConfig(beam_size=2, no_repeat_ngram=2, max_extra=10),
}


class Arriving:
    """A feed in which a few jobs arrive between two steps, and some are cancelled once taken."""

    def __init__(self, sources, config, cancels=()):
        self.waiting = [make_job(i, source, (), config) for i, source in enumerate(sources)]
        self.cancels = set(cancels)
        self.taken = []
        self.chance = random.Random(0)

    def longest(self):
        return len(self.waiting[0].source) if self.waiting else 0

    def take(self, count, longest):
        count = min(count, self.chance.randint(1, 9))
        fitting = [job for job in self.waiting if len(job.source) <= longest][:count]
        for job in fitting:
            self.waiting.remove(job)
        self.taken += [job.number for job in fitting]
        return fitting

    def cancelled(self):
        now = self.cancels.intersection(self.taken[:-20])  # after some steps
        self.cancels -= now
        return now


def stream(engine, feed, config):
    """The results of a feed by their numbers, and how many had been taken at each result."""
    from transduce.engines.cuda import continuous_batching

    found, taken = {}, []
    with torch.inference_mode(), engine.exclusive() as (model,):
        for number, hypotheses in continuous_batching.stream(model, feed, config, engine._graphs):
            assert number not in found
            found[number] = hypotheses
            taken.append(len(feed.taken))
    return found, taken


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())
def test_sentences_that_arrive_during_a_search_find_what_a_batch_finds(config):
    sources = some_sources(200)  # of up to 70 tokens: in places of two sizes
    engine = TorchEngine(build().cuda(), device="cuda")
    expected = engine.search(sources, config)
    for _ in range(3):  # warming up, recording, replaying
        found, taken = stream(engine, Arriving(sources, config), config)
        assert len(found) == 200
        assert taken[0] < 100 < taken[100]  # some join when others have left
        clear = [i for i in range(200) if expected[i][0].margin > NOISE]
        assert len(clear) > 190
        assert ids(found[i] for i in clear) == ids(expected[i] for i in clear)


def test_sentences_that_are_cancelled_leave_and_the_others_are_found():
    sources, config = some_sources(200, longest=40), SearchConfig(max_extra=10)
    engine = TorchEngine(build().cuda(), device="cuda")
    expected = engine.search(sources, config)
    for _ in range(3):
        feed = Arriving(sources, config, cancels=range(0, 150, 3))
        found, _ = stream(engine, feed, config)
        assert {*range(200)} - {*range(0, 150, 3)} <= found.keys()
        assert len(found) < 190  # a few were finished before
        clear = [i for i in found if expected[i][0].margin > NOISE]
        assert ids(found[i] for i in clear) == ids(expected[i] for i in clear)


def test_a_queue_in_bf16_gives_each_caller_the_translation_of_a_batch():
    sources, config = some_sources(400, longest=40), SearchConfig(max_extra=10)
    engine = TorchEngine(build().cuda().bfloat16(), device="cuda")
    assert engine.can_stream()
    expected = ids(engine.search(sources, config))
    queue = BatchingEngine(engine, QueueSettings())
    with ThreadPoolExecutor(64) as threads:
        for _ in range(3):
            found = list(threads.map(lambda source: ids(queue.search([source], config)), sources))
            same = [found[i] == [expected[i]] for i in range(400)]
            assert sum(same) >= 380  # rounding decides a few: products have another shape
    queue.close()


def test_a_request_whose_client_has_gone_frees_its_places():
    config = SearchConfig(min_length=400, max_length=400)
    engine = TorchEngine(build().cuda().bfloat16(), device="cuda")
    queue = BatchingEngine(engine, QueueSettings())
    caller = Caller()
    timer = threading.Timer(0.5, caller.cancel)
    timer.start()
    with pytest.raises(Cancelled), calling(caller):
        queue.search([[5, 6, 0]] * 2_000, config)
    assert len(queue.search([[7, 0]], config)[0]) == 1
    queue.close()
