"""The queue: every sentence gets its own result, in turn, and nothing waits without bounds."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from transduce.config import SearchConfig
from transduce.search.hypothesis import Hypothesis
from transduce.serving.queue import turns
from transduce.serving.queue.batching import BatchingEngine
from transduce.serving.queue.caller import Caller, calling
from transduce.serving.queue.turns import QueueSettings
from transduce.serving.refusals import Busy, Cancelled, RequestError

CONFIG = SearchConfig()


class Echo:
    """An engine whose hypotheses are the sources; it can be held up, and it notes its batches."""

    def __init__(self):
        self.batches = []
        self.go = threading.Event()
        self.go.set()
        self.error = None

    def search(self, sources, config, *, prefixes=(), token_scores=True):
        self.batches.append([list(source) for source in sources])
        assert self.go.wait(10)
        if self.error:
            raise self.error
        found = []
        for number, source in enumerate(sources):
            prefix = list(prefixes[number]) if prefixes else []
            found.append([Hypothesis(prefix + list(source), 0.0, 0.0, [])])
        return found


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def make(echo):
    """Make queues that are closed after the test."""
    made = []

    def make_queue(engine=echo, **settings):
        made.append(BatchingEngine(engine, QueueSettings(**settings)))
        return made[-1]

    yield make_queue
    echo.go.set()
    for queue in made:
        queue.close()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(64) as pool:
        yield pool


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def ids(found):
    return [hypotheses[0].ids for hypotheses in found]


def hold(queue, echo, threads):
    """Keep the worker busy with one sentence, so that everything else waits."""
    echo.go.clear()
    first = threads.submit(queue.search, [[99]], CONFIG)
    wait_until(lambda: echo.batches)
    return first


def test_every_caller_gets_its_own_results_in_order(make, echo, threads):
    echo.workers = 3
    queue = make()
    requests = [[[n, i] for i in range(n % 5 + 1)] for n in range(200)]
    found = list(threads.map(lambda sources: ids(queue.search(sources, CONFIG)), requests))
    assert found == requests
    assert queue.waiting_tokens == 0


def test_what_waits_is_searched_together(make, echo, threads):
    queue = make()
    hold(queue, echo, threads)
    calls = [threads.submit(queue.search, [[n]], CONFIG) for n in range(20)]
    wait_until(lambda: queue.waiting_tokens == 20)
    echo.go.set()
    assert [ids(call.result(10)) for call in calls] == [[[n]] for n in range(20)]
    assert len(echo.batches) == 2


def test_a_batch_has_no_more_tokens_than_allowed(make, echo, threads):
    queue = make(batch_tokens=10, share_tokens=10)
    hold(queue, echo, threads)
    calls = [threads.submit(queue.search, [[n] * 4], CONFIG) for n in range(9)]
    calls.append(threads.submit(queue.search, [[7] * 50], CONFIG))  # longer than any batch
    wait_until(lambda: queue.waiting_tokens == 86)
    echo.go.set()
    for call in calls:
        call.result(10)
    sizes = sorted(sum(map(len, batch)) for batch in echo.batches[1:])
    assert sizes[-1] == 50
    assert max(sizes[:-1]) <= 10


def test_a_short_request_is_in_the_next_batch_while_a_document_waits(make, echo, threads):
    queue = make(batch_tokens=4, share_tokens=4)
    hold(queue, echo, threads)
    document = threads.submit(queue.search, [[1]] * 100, CONFIG)
    wait_until(lambda: queue.waiting_tokens == 100)
    short = [threads.submit(queue.search, [[n]], CONFIG) for n in (2, 3)]
    wait_until(lambda: queue.waiting_tokens == 102)
    echo.go.set()
    for call in short:
        call.result(10)
    assert sorted(echo.batches[1]) == [[1], [2], [3]]  # a fourth would only make them wait
    assert len(document.result(10)) == 100


def test_a_document_alone_takes_small_batches_until_no_other_request_is_expected(
    make, echo, monkeypatch
):
    queue = make(batch_tokens=20, share_tokens=5)
    queue.search([[1]], CONFIG)
    queue.search([[1]] * 20, CONFIG)
    assert [len(batch) for batch in echo.batches[1:]] == [5, 5, 5, 5]
    monkeypatch.setattr(turns, "QUIET", 0.0)
    queue.search([[1]] * 40, CONFIG)
    assert [len(batch) for batch in echo.batches[5:]] == [20, 20]


def test_a_wide_beam_makes_batches_smaller(make, echo):
    queue = make(batch_tokens=20)
    queue.search([[1]] * 20, replace(CONFIG, beam_size=16))
    assert [len(batch) for batch in echo.batches] == [5, 5, 5, 5]


def test_a_short_request_gets_one_sentence_of_each_document_beside_it(make, echo, threads):
    queue = make(batch_tokens=100, share_tokens=10)
    hold(queue, echo, threads)
    documents = [threads.submit(queue.search, [[n]] * 200, CONFIG) for n in (1, 2)]
    wait_until(lambda: queue.waiting_tokens == 400)
    short = threads.submit(queue.search, [[3]], CONFIG)
    wait_until(lambda: queue.waiting_tokens == 401)
    echo.go.set()
    short.result(10)
    assert sorted(echo.batches[1]) == [[1], [2], [3]]
    assert [len(document.result(10)) for document in documents] == [200, 200]


def test_two_documents_share_each_batch(make, echo, threads):
    queue = make(batch_tokens=4, share_tokens=4)
    hold(queue, echo, threads)
    calls = [threads.submit(queue.search, [[n]] * 20, CONFIG) for n in (1, 2)]
    wait_until(lambda: queue.waiting_tokens == 40)
    echo.go.set()
    for call in calls:
        call.result(10)
    assert [sorted(batch) for batch in echo.batches[1:10]] == [[[1], [1], [2], [2]]] * 9


def test_searches_with_other_settings_do_not_share_a_batch(make, echo, threads):
    queue = make()
    hold(queue, echo, threads)
    other = SearchConfig(beam_size=1)
    calls = [threads.submit(queue.search, [[n]], CONFIG if n % 2 else other) for n in range(6)]
    wait_until(lambda: queue.waiting_tokens == 6)
    echo.go.set()
    assert [ids(call.result(10)) for call in calls] == [[[n]] for n in range(6)]
    assert sorted(map(len, echo.batches)) == [1, 3, 3]


def test_prefixes_stay_with_their_sentences(make, echo, threads):
    queue = make()
    hold(queue, echo, threads)
    calls = [
        threads.submit(queue.search, [[n]], CONFIG, prefixes=[[n, n]] if n % 2 else ())
        for n in range(6)
    ]
    wait_until(lambda: queue.waiting_tokens == 6)
    echo.go.set()
    expected = [[[n, n, n]] if n % 2 else [[n]] for n in range(6)]
    assert [ids(call.result(10)) for call in calls] == expected


def test_a_full_queue_refuses_more_and_says_when_to_come_back(make, echo, threads):
    queue = make(queue_tokens=10)
    hold(queue, echo, threads)
    waiting = [threads.submit(queue.search, [[n] * 4], CONFIG) for n in (1, 2)]
    wait_until(lambda: queue.waiting_tokens == 8)
    with pytest.raises(Busy) as refusal:
        queue.search([[1] * 3], CONFIG)
    assert refusal.value.retry_after > 0
    echo.go.set()
    for call in waiting:
        call.result(10)
    assert ids(queue.search([[1] * 30], CONFIG)) == [[1] * 30]


@pytest.mark.parametrize("queue_tokens", [1, 2, 10, 11])
def test_short_requests_are_accepted_beside_a_document_that_is_longer_than_the_queue(
    make, echo, threads, queue_tokens
):
    queue = make(queue_tokens=queue_tokens)
    hold(queue, echo, threads)
    document = threads.submit(queue.search, [[1]] * 30, CONFIG)
    wait_until(lambda: queue.waiting_tokens == 30)
    short = []
    for count in range(1, queue_tokens - max(1, queue_tokens // 2) + 1):
        short.append(threads.submit(queue.search, [[2]], CONFIG))
        wait_until(lambda waiting=30 + count: queue.waiting_tokens == waiting)
    with pytest.raises(Busy):
        queue.search([[3]], CONFIG)
    echo.go.set()
    assert len(document.result(10)) == 30
    assert [ids(call.result(10)) for call in short] == [[[2]]] * len(short)
    assert queue.waiting_tokens == 0
    assert ids(queue.search([[3]] * 30, CONFIG)) == [[3]] * 30


def test_only_two_documents_that_are_longer_than_the_queue_are_accepted(make, echo, threads):
    queue = make(queue_tokens=10)
    hold(queue, echo, threads)
    documents = [threads.submit(queue.search, [[n]] * 30, CONFIG) for n in (1, 2)]
    wait_until(lambda: queue.waiting_tokens == 60)
    with pytest.raises(Busy):
        queue.search([[3]], CONFIG)
    echo.go.set()
    assert [len(document.result(10)) for document in documents] == [30, 30]


def test_a_cancelled_request_leaves_the_queue(make, echo, threads):
    queue = make(queue_tokens=2)
    hold(queue, echo, threads)
    caller = Caller()

    def request():
        with calling(caller):
            queue.search([[1], [2]], CONFIG)

    call = threads.submit(request)
    wait_until(lambda: queue.waiting_tokens == 2)
    caller.cancel()
    with pytest.raises(Cancelled):
        call.result(10)
    assert queue.waiting_tokens == 0
    others = [threads.submit(queue.search, [[3]], CONFIG) for _ in range(2)]
    wait_until(lambda: queue.waiting_tokens == 2)  # there is room for them again
    echo.go.set()
    assert [ids(other.result(10)) for other in others] == [[[3]]] * 2
    assert [1] not in [source for batch in echo.batches for source in batch]


def test_a_request_that_takes_too_long_is_given_up(make, echo, threads):
    queue = make()
    hold(queue, echo, threads)
    start = time.monotonic()
    with pytest.raises(Busy, match=r"busy .* within 0\.1 seconds"), calling(Caller(0.1)):
        queue.search([[1]], CONFIG)
    assert 0.1 <= time.monotonic() - start < 2
    assert queue.waiting_tokens == 0
    echo.go.set()


def test_a_text_that_takes_too_long_is_too_large(make, echo, threads):
    """Also if its last sentence is handed in alone, as in a stream."""
    queue = make()
    message = r"of 3 sentences took longer than 0\.2 seconds; send less text"
    with calling(Caller(0.2)):
        queue.search([[1], [2]], CONFIG)
        hold(queue, echo, threads)
        with pytest.raises(RequestError, match=message) as refusal:
            queue.search([[3]], CONFIG)
    assert refusal.value.status == 413
    assert queue.waiting_tokens == 0
    echo.go.set()


def test_an_error_reaches_those_it_concerns_and_the_worker_goes_on(make, echo):
    queue = make()
    echo.error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        queue.search([[1]], CONFIG)
    echo.error = None
    assert ids(queue.search([[2]], CONFIG)) == [[2]]
    assert queue.is_alive


def test_a_closed_queue_refuses_everything(make, echo, threads):
    queue = make()
    hold(queue, echo, threads)
    waiting = threads.submit(queue.search, [[1]], CONFIG)
    wait_until(lambda: queue.waiting_tokens == 1)
    closing = threads.submit(queue.close)
    with pytest.raises(Busy, match="stopping"):
        waiting.result(10)
    echo.go.set()
    closing.result(10)
    with pytest.raises(Busy, match="stopping"):
        queue.search([[1]], CONFIG)
    assert not queue.is_alive


class Slow(Echo):
    """Takes so long for a batch that those who got a result have sent the next sentence."""

    def search(self, sources, config, **options):
        time.sleep(0.01)
        return super().search(sources, config, **options)


class Costly(Echo):
    """Takes as long for a batch as a base model in CTranslate2 on one core, twenty times faster."""

    workers = 2

    def search(self, sources, config, **options):
        time.sleep((0.25 + 0.065 * len(sources)) / 20)
        return super().search(sources, config, **options)


def slow_short_request(queue, count=40):
    """The time that nine of ten short requests do not exceed."""
    seconds = []
    for _ in range(count):
        start = time.monotonic()
        queue.search([[1] * 25], CONFIG)
        seconds.append(time.monotonic() - start)
        time.sleep(0.002)
    return sorted(seconds)[int(0.9 * count)]


def test_short_requests_beside_a_document_take_less_than_twice_as_long(make, threads):
    """A document leaves a worker to them, and its sentences are not in their batches."""
    queue = make(Costly())
    idle = slow_short_request(queue)
    stop = threading.Event()

    def translate_document():
        while not stop.is_set():
            queue.search([[2] * 25] * 400, CONFIG)

    document = threads.submit(translate_document)
    try:
        wait_until(lambda: queue.waiting_tokens)
        beside = slow_short_request(queue)
    finally:
        stop.set()
        queue.engine.go.set()
    document.cancel()
    queue.close()
    with contextlib.suppress(Busy):
        document.result(10)
    assert beside < 2 * idle


def test_documents_take_all_workers_when_no_other_request_is_expected(
    make, echo, threads, monkeypatch
):
    echo.workers = 2
    queue = make(share_tokens=5)
    queue.search([[1]], CONFIG)
    echo.go.clear()
    documents = [threads.submit(queue.search, [[n]] * 100, CONFIG) for n in (2, 3)]
    wait_until(lambda: len(echo.batches) == 2)
    time.sleep(0.1)
    assert len(echo.batches) == 2  # the other worker waits for the next request
    monkeypatch.setattr(turns, "QUIET", 0.0)
    with queue._changed:
        queue._changed.notify()
    wait_until(lambda: len(echo.batches) == 3)
    echo.go.set()
    assert [len(document.result(10)) for document in documents] == [100, 100]


def test_long_sentences_leave_a_worker_to_short_requests(make, echo, threads):
    echo.workers = 2
    queue = make(share_tokens=5)
    queue.search([[1]], CONFIG)
    echo.go.clear()
    long = [threads.submit(queue.search, [[n] * 6], CONFIG) for n in (2, 3)]
    wait_until(lambda: len(echo.batches) == 2)
    short = threads.submit(queue.search, [[4]], CONFIG)
    wait_until(lambda: len(echo.batches) == 3)
    assert echo.batches[2] == [[4]]
    echo.go.set()
    assert [ids(call.result(10)) for call in (*long, short)] == [[[2] * 6], [[3] * 6], [[4]]]


def test_a_text_of_some_sentences_takes_all_workers(make, echo, threads):
    echo.workers = 2
    queue = make(share_tokens=5)
    queue.search([[1]], CONFIG)
    echo.go.clear()
    start = time.monotonic()
    text = threads.submit(queue.search, [[2]] * 10, CONFIG)
    wait_until(lambda: len(echo.batches) == 3)
    assert time.monotonic() - start < turns.QUIET / 2
    echo.go.set()
    assert len(text.result(10)) == 10


def test_a_long_sentence_is_in_the_next_batch_however_many_short_ones_arrive(make, threads):
    echo = Slow()
    queue = make(echo, batch_tokens=8, share_tokens=8)
    hold(queue, echo, threads)
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            queue.search([[1, 1]], CONFIG)

    busy = [threads.submit(keep_busy) for _ in range(12)]
    wait_until(lambda: queue.waiting_tokens == 24)
    long = threads.submit(queue.search, [[2] * 30], CONFIG)
    wait_until(lambda: queue.waiting_tokens == 54)
    echo.go.set()
    try:
        assert ids(long.result(10)) == [[2] * 30]
    finally:
        stop.set()
    for call in busy:
        call.result(10)
    # Twelve were before it, four in a batch; those that came later were not.
    assert echo.batches.index([[2] * 30]) <= 5


class Streaming(Echo):
    """A stand-in for a GPU: three places; a sentence leaves after as many steps as it has tokens."""

    def __init__(self):
        super().__init__()
        self.joined = []  # the step at which each source joined
        self.left = []  # sources that were cancelled
        self.shapes = []

    def can_stream(self):
        return True

    def stream(self, feed, config, *, token_scores=True):
        step = 0
        while longest := feed.longest():
            shape = max(8, longest)
            self.shapes.append(shape)
            places = {}
            while True:
                for job in feed.take(3 - len(places), shape):
                    assert len(job.source) <= shape
                    places[job.number] = [job, len(job.source)]
                    self.joined.append((list(job.source), step))
                if not places:
                    break
                assert self.go.wait(10)
                step += 1
                time.sleep(0.001)
                for number in feed.cancelled():
                    self.left.append(list(places.pop(number)[0].source))
                for number, place in list(places.items()):
                    place[1] -= 1
                    if not place[1]:
                        del places[number]
                        source = list(place[0].source)
                        yield number, [Hypothesis(list(place[0].prefix) + source, 0.0, 0.0, [])]


def test_sentences_join_a_running_search_as_others_leave_it(make, threads):
    engine = Streaming()
    queue = make(engine)
    engine.go.clear()
    long = threads.submit(queue.search, [[5] * 8], CONFIG)
    wait_until(lambda: engine.joined)
    short = [threads.submit(queue.search, [[n]], CONFIG) for n in range(6)]
    wait_until(lambda: queue.waiting_tokens == 6)
    engine.go.set()
    assert [ids(call.result(10)) for call in short] == [[[n]] for n in range(6)]
    assert ids(long.result(10)) == [[5] * 8]
    assert engine.shapes == [8]  # one run: nobody waited for the long sentence to end
    assert max(step for _, step in engine.joined) < 8


def test_a_sentence_that_is_too_long_for_the_places_is_not_starved(make, threads):
    engine = Streaming()
    queue = make(engine)
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            queue.search([[1, 1]] * 4, CONFIG)

    busy = [threads.submit(keep_busy) for _ in range(12)]
    wait_until(lambda: engine.joined)
    try:
        with calling(Caller(5)):
            assert ids(queue.search([[2] * 30], CONFIG)) == [[2] * 30]
    finally:
        stop.set()
    for call in busy:
        call.result(10)
    assert 30 in engine.shapes


def test_a_stream_gives_each_caller_its_own_results(make, threads):
    queue = make(Streaming())
    requests = [[[n, i] for i in range(n % 5 + 1)] for n in range(100)]
    found = list(threads.map(lambda sources: ids(queue.search(sources, CONFIG)), requests))
    assert found == requests


def test_a_cancelled_sentence_leaves_its_place_to_the_next(make, threads):
    engine = Streaming()
    queue = make(engine)
    engine.go.clear()
    caller = Caller()

    def request():
        with calling(caller):
            queue.search([[5] * 8] * 3, CONFIG)

    cancelled = threads.submit(request)
    wait_until(lambda: len(engine.joined) == 3)  # all places are taken
    waiting = threads.submit(queue.search, [[6] * 8], CONFIG)
    wait_until(lambda: queue.waiting_tokens == 8)
    caller.cancel()
    with pytest.raises(Cancelled):
        cancelled.result(10)
    engine.go.set()
    assert ids(waiting.result(10)) == [[6] * 8]
    assert engine.left == [[5] * 8] * 3
    assert engine.joined[3] == ([6] * 8, 1)  # not after the eight steps of the others


def test_a_stream_that_cannot_begin_fails_the_request_that_is_next(make):
    """And does not try it for ever."""
    engine = Streaming()
    engine.stream = lambda feed, *_, **options: (feed.longest(), 1 / 0)
    queue = make(engine)
    with pytest.raises(ZeroDivisionError), calling(Caller(5)):
        queue.search([[1]], CONFIG)
    assert queue.waiting_tokens == 0
    assert queue.is_alive
