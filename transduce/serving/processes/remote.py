"""Models of another process: what a process must know of them, and how it asks for searches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from transduce.config import SearchConfig
from transduce.serving.models import Models
from transduce.serving.processes.channel import Asking
from transduce.serving.queue.calls import Call, Queue
from transduce.serving.settings import ServerSettings
from transduce.storage.bundle import Bundle


@dataclass(frozen=True)
class RemoteModel:
    """A model that another process searches with."""

    name: str
    bundle: Bundle
    search: SearchConfig
    engine: str
    source_language: str | None
    target_language: str | None
    parameters: int


@dataclass(frozen=True)
class Work:
    """What an HTTP process serves."""

    settings: ServerSettings
    models: list[RemoteModel]
    refused: dict[str, str]
    writes_log: bool


class RemoteQueue(Queue):
    """The queue of a model in the process that searches."""

    def __init__(self, asking: Asking, name: str, engine: str) -> None:
        self.engine_name = engine
        self._asking = asking
        self._name = name  # of the model

    @property
    def is_alive(self) -> bool:
        """Whether the process and the queue are."""
        return self._asking.is_open and bool(self._asking.ask("is_alive", self._name))

    @property
    def waiting_tokens(self) -> int:
        """The number of source tokens of all processes that wait."""
        tokens: int = self._asking.ask("waiting_tokens", self._name)
        return tokens

    def submit(self, call: Call) -> None:
        """Send a call to the process that searches; if it refuses, the call fails."""
        arguments = (
            self._name,
            call.sources,
            call.config,
            call.prefixes,
            call.token_scores,
            call.caller,
        )
        self._asking.ask_later(call, "search", *arguments)

    def close(self) -> None:
        """Do nothing: other processes need the queue."""


def search_functions(models: Models, process: int) -> dict[str, Callable[..., Any]]:
    """Return the functions that answer the questions of a `RemoteQueue` in one of the processes."""
    return {
        "is_alive": lambda name: models.named(name).queue.is_alive,
        "waiting_tokens": lambda name: models.named(name).queue.waiting_tokens,
        "search": partial(_search, models, process),
    }


def _search(
    models: Models,
    process: int,
    name: str,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]],
    token_scores: bool,
    caller: Hashable,
) -> Call:
    call = Call(sources, _only_one(config), prefixes, token_scores, (process, caller))
    models.named(name).queue.submit(call)
    return call


@lru_cache(maxsize=1_000)
def _only_one(config: SearchConfig) -> SearchConfig:
    """Return the first of all equal settings: comparing a thing with itself takes no time."""
    return config
