"""From token ids to search results: equal pieces share one search, and own engines are checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

from transduce.config import SearchConfig
from transduce.data.tokenizer import Tokenizer
from transduce.errors import HookError, TransduceError
from transduce.search.hypothesis import Hypothesis
from transduce.translation import chunks

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.torch import Engine

Candidate = tuple[Hypothesis, str]  # a hypothesis and its text


@dataclass(frozen=True)
class Searched:
    """The search results of one piece."""

    limit: int  # the largest number of tokens
    candidates: list[Candidate]


@dataclass(frozen=True)
class Searcher:
    """Searches for the translations of pieces, and decodes them."""

    engine: Engine
    tokenizer: Tokenizer  # of the target language
    config: SearchConfig
    confidences: bool = False  # whether the scores of single tokens are needed

    def results(
        self, sources: list[list[int]], prefixes: list[list[int]], *, in_chunks: bool
    ) -> Iterator[Searched]:
        """Yield the search results of each piece.

        All are searched at once, or in growing chunks if the caller waits for single sentences.
        """
        size = chunks.sizes(first=1) if in_chunks else iter([len(sources)])
        start = 0
        while start < len(sources):
            end = start + next(size)
            chunk = sources[start:end]
            found = self._search_distinct(chunk, prefixes[start:end])
            start = end

            # Decode all hypotheses in one call.
            ids = [hypothesis.ids for hypotheses in found for hypothesis in hypotheses]
            decoded = iter(self.tokenizer.decode_batch(ids))
            for source, hypotheses in zip(chunk, found, strict=True):
                texts = islice(decoded, len(hypotheses))
                candidates = list(zip(hypotheses, texts, strict=True))
                yield Searched(self.config.limit(len(source)), candidates)

    def _search_distinct(
        self, sources: list[list[int]], prefixes: Sequence[Sequence[int]]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source; equal sources with equal prefixes share them."""
        # A long text without an end is split into equal parts, and files repeat their lines.
        pairs = zip_longest(sources, prefixes, fillvalue=())
        keys = [(tuple(source), tuple(prefix)) for source, prefix in pairs]
        first_of: dict[Any, int] = {}
        for index, key in enumerate(keys):
            first_of.setdefault(key, index)

        first = list(first_of.values())
        found = self._search(
            [sources[index] for index in first],
            [prefixes[index] for index in first] if prefixes else (),
        )
        hypotheses_of = dict(zip(first_of, found, strict=True))
        return [hypotheses_of[key] for key in keys]

    def _search(
        self, sources: list[list[int]], prefixes: Sequence[Sequence[int]]
    ) -> list[list[Hypothesis]]:
        """Return the engine's hypotheses, and check them if the engine is the user's own."""
        search = self.engine.search
        if type(self.engine).__module__.startswith("transduce."):
            return search(sources, self.config, prefixes=prefixes, token_scores=self.confidences)
        name = type(self.engine).__name__
        try:
            found = search(sources, self.config, prefixes=prefixes, token_scores=self.confidences)
            is_valid = len(found) == len(sources) and all(map(_are_hypotheses, found))
        except TransduceError:
            raise
        except Exception as error:
            raise HookError(f"engine {name} raised {type(error).__name__}: {error}") from error
        if not is_valid:
            raise HookError(
                f"engine {name} returned {type(found).__name__} for {len(sources)} sources; "
                "expected a list of at least one Hypothesis for each"
            )
        return found


def with_n_best(search: SearchConfig, n_best: int | None) -> SearchConfig:
    """Return the settings for this many translations, with a beam that is wide enough."""
    if n_best is None or n_best == search.n_best:
        return search
    beam_size = search.beam_size
    if isinstance(n_best, int) and search.temperature == 0:
        beam_size = max(beam_size, math.ceil(n_best / min(1, search.patience)))
    return replace(search, n_best=n_best, beam_size=beam_size)


def _are_hypotheses(hypotheses: Any) -> bool:
    is_empty = not hypotheses
    return not is_empty and all(isinstance(item, Hypothesis) for item in hypotheses)
