"""What requests share, whichever process answers them: rates, places and translated files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from transduce.serving.file_store import FileStore
from transduce.serving.guards.places import Kind, Places
from transduce.serving.guards.rates import Rates
from transduce.serving.settings import ServerSettings


class SharedState:
    """The things themselves, in one process."""

    def __init__(self, settings: ServerSettings) -> None:
        self._rates = Rates(settings.requests_per_minute)
        self._places = Places(settings)
        self._files = FileStore()

    def functions(self, process: int) -> dict[str, Callable[..., Any]]:
        """Return, by name, what `Shared` asks for in one of the processes."""
        return {
            "count_request": self._rates.take,
            "take_place": partial(self._places.take, process),
            "give_place_back": partial(self._places.give_back, process),
            "add_file": self._files.add,
            "get_file": self._files.get,
        }

    def forget(self, process: int) -> None:
        """Give back what a process had that has ended."""
        self._places.forget(process)


class Shared:
    """The same things as requests see them, in any process."""

    def __init__(
        self, settings: ServerSettings, ask: Callable[..., Awaitable[Any]] | None = None
    ) -> None:
        """Ask another process with `ask`; by default the things are in this one."""
        self._has_rate = settings.requests_per_minute > 0
        self._ask = ask or partial(_call, SharedState(settings).functions(process=0))

    async def count_request(self, caller: bytes) -> None:
        """Count a request of a caller, or raise `TooManyRequests`."""
        if self._has_rate:
            await self._ask("count_request", caller)

    async def take_place(self, kind: Kind) -> None:
        """Take a place for something that needs much memory, or raise `Busy`."""
        await self._ask("take_place", kind)

    async def give_place_back(self, kind: Kind) -> None:
        """Give a place back."""
        await self._ask("give_place_back", kind)

    async def add_file(self, data: bytes, suffix: str) -> str:
        """Keep a translated document for its client, and return its name."""
        name: str = await self._ask("add_file", data, suffix)
        return name

    async def get_file(self, name: str) -> bytes | None:
        """Return a translated document; None if there is none of this name."""
        data: bytes | None = await self._ask("get_file", name)
        return data


async def _call(functions: dict[str, Callable[..., Any]], name: str, *arguments: Any) -> Any:
    return functions[name](*arguments)
