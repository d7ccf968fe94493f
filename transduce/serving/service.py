"""What all requests share: the models, the settings, and threads in which texts are translated."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from transduce.serving.guards.keys import Gate
from transduce.serving.models import Models, ServedModel
from transduce.serving.queue.caller import Caller, calling
from transduce.serving.refusals import FAILED, Busy, RequestError, is_fault
from transduce.serving.settings import ServerSettings
from transduce.serving.shared import Shared

Result = TypeVar("Result")
Emit = Callable[[str, Any], None]  # sends an event with its name and data


class Service:
    """The server without HTTP: it runs functions in threads and gives up on them in time."""

    def __init__(
        self, models: Models, settings: ServerSettings, shared: Shared | None = None
    ) -> None:
        self.models = models
        self.settings = settings
        self.shared = shared or Shared(settings)
        self.gate = Gate(settings.api_keys, self.shared.count_request)
        self.is_draining = False
        # Whether torch translates on this CPU, and does not only align and inspect.
        self.needs_torch = any(map(_runs_on_cpu_in_torch, models.served))
        self._places = threading.BoundedSemaphore(settings.max_requests)
        self._threads = ThreadPoolExecutor(settings.max_requests, thread_name_prefix="request")
        self._callers: set[Caller] = set()  # of the requests that are worked on

    def check_texts(self, request: Request, texts: list[str], *, too_much: int = 413) -> None:
        """Refuse texts that are too many, too long, or no text at all; note them for the log."""
        settings = self.settings
        if len(texts) > settings.max_texts:
            raise RequestError(
                too_much,
                f"the request has {len(texts)} texts; at most {settings.max_texts} are allowed",
            )
        characters = sum(map(len, texts))
        if characters > settings.max_characters:
            raise RequestError(
                too_much,
                f"Invalid request: request ({characters}) exceeds text limit "
                f"({settings.max_characters})",
            )
        for text in texts:
            if not _is_unicode(text):
                raise RequestError(
                    400, "a text contains half of a surrogate pair; expected valid Unicode"
                )
        request.scope["texts"] = texts

    async def run(self, request: Request, function: Callable[[], Result]) -> Result:
        """Run a function in a thread; tell it to give up when the client has gone."""
        caller = Caller(self.settings.answer_seconds)
        work = self._start(caller, function)
        watch = asyncio.ensure_future(_disconnected(request))
        try:
            both: set[asyncio.Future[Any]] = {work, watch}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                caller.cancel()
                # The request keeps what it has taken until the thread no longer uses it.
                await asyncio.wait({work})
                raise ClientDisconnect
            return work.result()
        finally:
            caller.cancel()
            watch.cancel()

    def stream(self, function: Callable[[Emit], Any]) -> AsyncIterator[bytes]:
        """Run a function in a thread, and return what it emits as server-sent events.

        A request that the server has no room for is refused here, before any answer is sent.
        """
        caller = Caller(self.settings.answer_seconds)
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[bytes | None] = asyncio.Queue()

        def emit(name: str, data: Any) -> None:
            event = f"event: {name}\ndata: {json.dumps(data)}\n\n"
            loop.call_soon_threadsafe(events.put_nowait, event.encode())

        def work() -> None:
            try:
                emit("done", function(emit))
            except Exception as error:
                emit("error", {"error": FAILED if is_fault(error) else str(error)})
                if is_fault(error):
                    raise
            finally:
                loop.call_soon_threadsafe(events.put_nowait, None)

        return _until_done(events, self._start(caller, work), caller)

    def limit_torch(self) -> None:
        """Let torch use one core in this thread, if other engines translate.

        Inspections and alignments of several requests share the cores with translations. On busy
        cores, threads of one operation that wait for each other are many times slower than one.
        """
        # Importing it takes seconds, and not all requests need it. Another thread may be at it.
        torch: Any = sys.modules.get("torch")
        is_loaded = hasattr(torch, "get_num_threads")
        if is_loaded and not self.needs_torch and torch.get_num_threads() > 1:
            torch.set_num_threads(1)

    def give_up(self) -> None:
        """Refuse the requests that are still worked on, because the server has to end."""
        for caller in [*self._callers]:
            caller.cancel(Busy("the server is stopping", 5))

    def close(self) -> None:
        """Stop all threads."""
        self.models.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self, caller: Caller, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Start a function in a thread, if one is free."""
        if not self._places.acquire(blocking=False):
            raise Busy("the server has too many requests; try again later", 1)

        self._callers.add(caller)

        def work() -> Result:
            try:
                self.limit_torch()
                with calling(caller):
                    return function()
            finally:
                self._callers.discard(caller)
                self._places.release()

        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # If the client has gone, nobody asks what became of it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future


def service_of(request: Request) -> Service:
    """Return the service that a request is sent to."""
    service: Service = request.app.state.service
    return service


async def _until_done(
    events: asyncio.Queue[bytes | None], running: asyncio.Future[None], caller: Caller
) -> AsyncIterator[bytes]:
    """Yield events until the function that emits them has ended; if nobody listens, cancel it."""
    try:
        while (event := await events.get()) is not None:
            yield event
        await running
    finally:
        caller.cancel()


async def _disconnected(request: Request) -> None:
    """Return when the client has closed its connection. The body must have been read."""
    with contextlib.suppress(ClientDisconnect):
        while (await request.receive())["type"] != "http.disconnect":
            pass


def _runs_on_cpu_in_torch(model: ServedModel) -> bool:
    device = getattr(model.direct.engine, "device", None)  # a `RemoteQueue` has none
    return model.engine == "torch" and getattr(device, "type", None) == "cpu"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
