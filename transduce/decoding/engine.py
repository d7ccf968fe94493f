"""Running a model in torch: sorted batches under a token budget, searched step by step.

A sentence's translation does not depend on its neighbours. Products of other shapes round differently, in the last
bits, so numbers of a batch are not those of a sentence alone; but they differ by far less than `NOISE`, and a search
knows by how much its closest decision was taken (`Hypothesis.margin`). Where that is less, the sentence is searched
again, alone. So in float32 every sentence is translated as it would be alone, on any device and by any kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.bundle import Bundle
from transduce.config import SearchConfig
from transduce.decoding.hypothesis import Hypothesis
from transduce.decoding.search import search, sentence_seed
from transduce.decoding.stepping import Cache, begin, step
from transduce.errors import ConfigError
from transduce.model import Tokens, Transformer

BATCH_TOKENS = 16_384  # source and possible target tokens of one batch, all hypotheses counted
NOISE = 2e-4  # no score in float32 is that far from the one that a sentence would have alone


class Engine(Protocol):
    """A way to run a bundle: the n best hypotheses of each source."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] = (),
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source, best first.

        Sources are token ids that end with the end of the sentence; `prefixes` are forced beginnings. Without
        `token_scores` an engine need not say how probable each token is.
        """


def resolve_device(name: str | None) -> torch.device:
    """The device of that name; by default a GPU where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"device is {name!r}, which torch cannot use here ({reason}); try cpu") from None
    return device


def load_model(bundle: Bundle, device: torch.device | str = "cpu") -> Transformer:
    """The bundle's model, for inference."""
    with torch.device("meta"):
        model = Transformer(bundle.recipe.model)
    model.load_state_dict(bundle.weights(device), assign=True)
    return model.eval().requires_grad_(False)


class TorchEngine:
    """A model on a device. The model is only read."""

    def __init__(self, model: Transformer, device: torch.device | str = "cpu") -> None:
        self.model = model
        self.device = torch.device(device)
        self.dtype = model.target_embedding.weight.dtype

    @torch.inference_mode()
    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] = (),
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source, best first."""
        found: list[list[Hypothesis]] = [[] for _ in sources]

        def look(batch: list[int]) -> list[int]:
            """Search a batch; those of it that must be looked at again, alone."""
            some = self._search([sources[i] for i in batch], config, [prefixes[i] for i in batch] if prefixes else [])
            for i, hypotheses in zip(batch, some, strict=True):
                found[i] = hypotheses
            exact = len(batch) > 1 and self.dtype == torch.float32
            return [i for i in batch if found[i][0].margin < NOISE] if exact else []

        with _evaluating(self.model):
            doubtful = [i for batch in batches(sources, config) for i in look(batch)]
            for i in doubtful:
                look([i])
        return found

    def _search(
        self, sources: list[Sequence[int]], config: SearchConfig, prefixes: list[Sequence[int]]
    ) -> list[list[Hypothesis]]:
        return search(
            self._step,
            begin(self.model, Tokens.padded(sources, self.pad).to(self.device)),
            [config.limit(len(source)) for source in sources],
            self.model.config.pad,
            config,
            prefixes=prefixes,
            seeds=[sentence_seed(config.seed, source) for source in sources],
            device=self.device,
        )

    @property
    def pad(self) -> int:
        """The id that fills rows of sources."""
        config = self.model.config
        return (config.source_vocab_size or config.vocab_size) - 1

    def _step(self, tokens: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        logits, cache = step(self.model, tokens, cache)
        return log_probabilities(logits), cache


def log_probabilities(logits: Tensor) -> Tensor:
    """Of all that can be said: padding, the last, cannot.  (R, V) -> (R, V), and the logits are no more."""
    logits[:, -1] = -torch.inf
    return F.log_softmax(logits.float(), dim=-1)


def batches(sources: Sequence[Sequence[int]], config: SearchConfig) -> Iterator[list[int]]:
    """Indices of the sources, longest first, in batches of which no row can need more than its share of the budget."""
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]), reverse=True)
    while order:
        length = len(sources[order[0]])
        size = max(1, BATCH_TOKENS // (length + config.limit(length) * config.width))
        yield order[:size]
        order = order[size:]


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Without dropout, and afterwards as before: a model may be translating in the middle of its training."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
