"""Measure what Python costs in front of a fast GPU: a server whose engine sleeps for as long.

    python -m bench.serving [--processes 1 2 4] [--texts 1 8] [--clients 64]

The engine has 64 places, as that of a GPU; a sentence leaves its place after 31 steps of 0.39 ms,
which is the speed of `bench.decode` on an H200 (base, 64 sentences, beam 4). It copies its source.
Clients and server share the cores of this machine, so throughput says little on a small one. The
processor time of a request does: it shows how many requests a core could answer. (Linux only.)
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.config import SearchConfig
from transduce.engines.cuda.continuous_batching import Feed
from transduce.search.hypothesis import Hypothesis, Job
from transduce.serving.load import send
from transduce.serving.models import Models, with_queue
from transduce.serving.processes.supervisor import HttpProcesses
from transduce.serving.queue.turns import QueueSettings
from transduce.serving.server import bind, make_server, prepare_process
from transduce.serving.service import Service
from transduce.serving.settings import ServerSettings
from transduce.storage.installed import find_bundle
from transduce.translation.benchmark import read_sentences

PLACES = 64
STEPS = 2  # between two looks at the places
SECONDS = 0.39e-3  # of a step
LENGTH = 31  # steps of a sentence
WARM_UP = 4  # requests of each client


class SleepingEngine:
    """An engine that searches as fast as a GPU, and as a GPU leaves the processor alone."""

    def can_stream(self) -> bool:
        """Sentences join and leave at any time."""
        return True

    def search(self, *_: object, **options: object) -> list[list[Hypothesis]]:
        """Do nothing: the queue streams."""
        raise NotImplementedError

    def stream(
        self, feed: Feed, config: SearchConfig, *, token_scores: bool = True
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the source of each job as its translation, when its time has passed."""
        while longest := feed.longest():
            places: dict[int, tuple[Job, int]] = {}  # by the number of a job: its last step
            for step in itertools.count(0, STEPS):
                for number in feed.cancelled():
                    del places[number]
                empty = PLACES - len(places)
                if empty * 8 >= PLACES or not places:
                    for job in feed.take(empty, longest=max(64, longest)):
                        places[job.number] = (job, step + LENGTH)
                if not places:
                    break
                time.sleep(STEPS * SECONDS)
                done = [number for number, (_, last) in places.items() if last <= step]
                for number in done:
                    ids = list(places.pop(number)[0].source[:-1])
                    yield number, [Hypothesis(ids, -1.0, -1.0, [])]


@contextmanager
def serving(count: int) -> Iterator[tuple[str, list[int]]]:
    """Serve with so many processes for HTTP; yield the address and the processes."""
    bundle, _ = read_sentences(find_bundle(), None, 1)
    model = with_queue(bundle, "sleeping", SleepingEngine(), None, QueueSettings())
    models = Models([model])
    settings = ServerSettings()
    listener = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/translate"
    if count > 1:
        processes = HttpProcesses(models, settings, listener, count)
        processes.start()
        yield url, [os.getpid(), *processes.pids]
        processes.stop()
        return
    server = make_server(Service(models, settings))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    yield url, [os.getpid()]
    server.should_exit = True
    thread.join()


def processor_seconds(pid: int) -> float:
    """Return how long a process has used a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print a line for each load."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=8_000)
    parser.add_argument("--input", type=Path, help="sentences, one per line")
    options = parser.parse_args()
    _, sentences = read_sentences(find_bundle(), options.input, 1_000)
    prepare_process(ServerSettings())

    for count in options.processes:
        with serving(count) as (url, pids):
            for texts in options.texts:
                repeated = itertools.cycle(sentences)
                total = options.requests // texts
                bodies = [
                    json.dumps({"text": list(itertools.islice(repeated, texts))})
                    for _ in range(total)
                ]
                before = [processor_seconds(pid) for pid in pids]
                seconds, _ = send(url, bodies, options.clients, first=WARM_UP)
                used = [
                    processor_seconds(pid) - start for pid, start in zip(pids, before, strict=True)
                ]
                sent = total + WARM_UP * options.clients
                search, *http = [1e3 * part / sent for part in used]
                print(
                    f"{count} processes, {texts} sentences in a request: "
                    f"{total * texts / seconds:,.0f} sentences/s; processor ms of a request: "
                    f"{search:.2f} in the process that searches, {sum(http):.2f} in the others",
                    flush=True,
                )


if __name__ == "__main__":
    main()
