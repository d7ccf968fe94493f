"""Running a model in torch: sorted batches under a token budget, searched step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

BATCH_TOKENS = 4096  # source and possible target tokens of one batch, all hypotheses counted


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
        training = self.model.training
        self.model.eval()
        found: list[list[Hypothesis]] = [[] for _ in sources]
        limits = [config.limit(len(source)) for source in sources]
        try:
            for batch in batches(sources, limits, config.width):
                results = search(
                    self._step,
                    begin(self.model, Tokens.padded([sources[i] for i in batch], self.pad).to(self.device)),
                    [limits[i] for i in batch],
                    self.model.config.pad,
                    config,
                    prefixes=[prefixes[i] for i in batch] if prefixes else (),
                    seeds=[sentence_seed(config.seed, sources[i]) for i in batch],
                    device=self.device,
                )
                for i, hypotheses in zip(batch, results, strict=True):
                    found[i] = hypotheses
        finally:
            self.model.train(training)
        return found

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


def batches(sources: Sequence[Sequence[int]], limits: Sequence[int], width: int) -> Iterator[list[int]]:
    """Indices of the sources, longest first, in batches that may take at most `BATCH_TOKENS` tokens."""
    order = sorted(range(len(sources)), key=lambda i: (limits[i], len(sources[i])), reverse=True)
    while order:
        cost = len(sources[order[0]]) + limits[order[0]] * width
        size = max(1, BATCH_TOKENS // cost)
        yield order[:size]
        order = order[size:]
