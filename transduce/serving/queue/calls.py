"""The queue as a request sees it: hand in sentences, wait for translations, give up in time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

from transduce.config import SearchConfig
from transduce.errors import TransduceError
from transduce.search.hypothesis import Hypothesis
from transduce.serving.queue.answer import Answer
from transduce.serving.queue.caller import Caller, current_caller
from transduce.serving.refusals import Busy, RequestError


class Call(Answer[list[list[Hypothesis]]]):
    """The sentences of one call of `search`, and later the hypotheses of each.

    It fails if nobody needs them any more.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]] = (),
        token_scores: bool = True,
        caller: Hashable = None,
    ) -> None:
        super().__init__()
        self.sources = sources
        self.config = config
        self.prefixes = prefixes
        self.token_scores = token_scores
        self.caller = caller  # the request that it is part of


class Queue(ABC):
    """An engine that searches the sentences of many threads together."""

    is_streaming = False  # whether sentences join a search that runs, as on a GPU

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether calls that are handed in will be searched."""

    @property
    @abstractmethod
    def waiting_tokens(self) -> int:
        """The number of source tokens that wait."""

    @abstractmethod
    def submit(self, call: Call) -> None:
        """Accept a call, or raise `Busy`. A call that ends early leaves the queue."""

    @abstractmethod
    def close(self) -> None:
        """Refuse all further calls."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] = (),
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each source, best first.

        Raises `Busy` if too much waits, the reason if the request was given up, and either `Busy`
        or a `RequestError` if its deadline has passed.
        """
        if not sources:
            return []
        caller = current_caller()
        caller.sentences += len(sources)
        call = Call(sources, config, prefixes, token_scores, caller.number)
        self.submit(call)
        with caller.listening(call.fail):
            try:
                return call.result(caller.seconds_left())
            except TimeoutError:
                call.fail(_too_late(caller))
                return call.result()


def _too_late(caller: Caller) -> TransduceError:
    """Return the error of a request whose deadline has passed: less text would take less time."""
    if caller.sentences > 1:
        return RequestError(
            413,
            f"the translation of {caller.sentences} sentences took longer than "
            f"{caller.seconds:g} seconds; send less text",
        )
    return Busy(
        f"the server is too busy to translate a sentence within {caller.seconds:g} seconds; try "
        "again later",
        1,
    )
