"""Running a model in torch: sorted batches under a token budget, searched step by step.

A sentence's translation does not depend on its neighbours. Products of other shapes round differently, in the last
bits, so numbers of a batch are not those of a sentence alone; but they differ by far less than `NOISE`, and a search
knows by how much its closest decision was taken (`Hypothesis.margin`). Where that is less, the sentence is searched
again, alone. So in float32 every sentence is translated as it would be alone, on any device and by any kernel.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig, SearchConfig
from transduce.data.batches import up_to
from transduce.engines.buffers import buffered
from transduce.errors import BundleError, ConfigError, InputError
from transduce.kernels.accelerate import Snapshot, accelerate, deviation
from transduce.model import State, Tokens, Transformer
from transduce.search.hypothesis import Hypothesis, Job
from transduce.search.search import Ensemble, ensemble, search, sentence_seed
from transduce.storage.bundle import Bundle

BATCH_TOKENS = 16_384  # source and possible target tokens of one batch, all hypotheses counted
# In half precision rows are a multiple of this: attention then adds up in one order, whatever the
# padding.
WIDTH = 32
NOISE = 2e-4  # no score in float32 is that far from the one that a sentence would have alone


logger = logging.getLogger("transduce")
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


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
    reason = ""
    try:
        device = torch.device(name)
        if device.type in (
            "cpu",
            "cuda",
            "mps",
        ):  # others hold no numbers, or have a library of their own
            return torch.empty(0, device=device).device
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # some with a list of all that torch was ever built for
        told = str(error).partition("\n")[0].partition(". ")[0]
        reason = f" ({told})" if len(told) < 100 else ""
    present = ", ".join(["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))])
    raise ConfigError(
        f"device is {name!r}, which torch cannot use here{reason}; there is {present}"
    )


def load_model(
    bundle: Bundle,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    build: Callable[[ModelConfig], nn.Module] | None = None,
) -> Any:
    """The bundle's model, for inference; `build` makes a model of one's own from its config."""
    if build is None:
        bundle.refuse_own_model()
        with torch.device("meta"):
            model: Any = Transformer(bundle.recipe.model)
    else:
        model = build(bundle.recipe.model)
        refuse_other_protocol(model)
    try:
        model.load_state_dict(bundle.weights(device, dtype), assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split()[:40])
        raise BundleError(
            f"the weights of {bundle.path} do not fit {type(model).__name__}: {reason}"
        ) from None
    return model.to(device).eval().requires_grad_(False)


class TorchEngine:
    """A model on a device, or several that share a vocabulary: their mean probability counts.

    A model is a `Transformer`, or anything with `config`, `encode` and `decode` like it. It is only
    read, as it is at each call, but its standard parts get fused forms (`kernels.accelerate`). With
    `frozen`, its weights may be laid out anew, and later changes of them are not seen.
    """

    def __init__(
        self, *models: nn.Module, device: torch.device | str = "cpu", frozen: bool = False
    ) -> None:
        for model in models:
            refuse_other_protocol(model)
        self.models: tuple[Any, ...] = models
        # "cuda" with its number, which differs between threads.
        self.device = torch.empty(0, device=device).device
        self.dtype = next(
            weight.dtype for weight in models[0].parameters() if weight.is_floating_point()
        )
        self._frozen = frozen
        # Searches share what they change: places on a GPU, a model that is learning.
        self._turn = threading.Lock()
        self._snapshots: list[Snapshot] = []
        self._deviation: str | None = None  # of a model from the standard one
        self._graphs: dict[tuple[Any, ...], Any] = {}  # see `continuous_batching.search`

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
        draws = config.temperature > 0
        limits = {length: config.limit(length) for length in set(map(len, sources))}
        jobs = [
            Job(
                i, source, limits[len(source)], prefixes[i] if prefixes else (),
                sentence_seed(config.seed, source) if draws else 0,
            )
            for i, source in enumerate(sources)
        ]  # fmt: skip
        exact = self.dtype == torch.float32
        alone = exact and draws  # a number drawn between tokens of the tail always decides closely
        with self._turn, _evaluating(self.models):
            self._accelerate()
            found = {
                i: one
                for some in ([[job] for job in jobs] if alone else [jobs])
                for i, one in self._search(some, config, token_scores)
            }
            if exact and len(jobs) > 1 and not alone:
                doubtful = [job for job in jobs if found[job.number][0].margin < NOISE]
                found |= {
                    i: one
                    for job in doubtful
                    for i, one in self._search([job], config, token_scores)
                }
        return [found[i] for i in range(len(sources))]

    def _search(
        self, jobs: Sequence[Job], config: SearchConfig, token_scores: bool
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        if self.device.type == "cuda" and len(self.models) == 1 and not self._deviation:
            from transduce.engines.cuda import continuous_batching  # and with it Triton

            with torch.cuda.device(self.device):
                yield from continuous_batching.search(
                    self.models[0], jobs, config, self._graphs, token_scores=token_scores
                )
            return
        shape = self.models[0].config
        for batch in batches(jobs, config):
            width = max(len(job.source) for job in batch)
            if self.dtype != torch.float32:
                width = up_to(width, WIDTH)
            source = Tokens.packed([[job.source] for job in batch], shape.source_pad, width).to(
                self.device
            )
            results = search(
                ensemble([partial(_step, model) for model in self.models]),
                Ensemble(tuple(_begin(model, source) for model in self.models)),
                [job.limit for job in batch],
                shape.pad,
                config,
                prefixes=[job.prefix for job in batch],
                seeds=[job.seed for job in batch],
                device=self.device,
            )
            yield from zip((job.number for job in batch), results, strict=True)

    def _accelerate(self) -> None:
        """Give models their fused forms, anew where parts, hooks or weights of them have changed."""
        if self.device.type != "cuda" and not self._frozen:
            return
        if self._snapshots and all(snapshot.holds() for snapshot in self._snapshots):
            return
        self._graphs.clear()
        for model in self.models:
            accelerate(model, self.device, frozen=self._frozen)
        packed = self._frozen and self.device.type == "cpu"  # a copy of the weights
        self._snapshots = [Snapshot(model, versions=packed) for model in self.models]
        found = deviation(self.models[0])
        if self.device.type == "cuda" and found and found != self._deviation:
            logger.warning(
                "no standard model (%s): it is searched step by step, without CUDA graphs", found
            )
        self._deviation = found


def refuse_other_protocol(model: Any) -> None:
    """Refuse a model that cannot be trained or searched: `encode`, `decode` and `config` are needed."""
    missing = [name for name in ("encode", "decode", "config") if not hasattr(model, name)]
    if missing or not isinstance(model, nn.Module):
        found = f"has no {missing[0]}" if missing else "is not a torch.nn.Module"
        raise InputError(
            f"the model {type(model).__name__} {found}; expected a module with config (a ModelConfig), "
            "encode(source) -> state and decode(target, state) -> (logits, state), as Transformer has"
        )


def _begin(model: Any, source: Tokens) -> Any:
    state = model.encode(source)
    return buffered(state) if type(state) is State else state


def _step(model: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    logits, state = model.decode(tokens[:, None], state)
    if logits.shape != (expected := (tokens.size(0), 1, model.config.vocab_size)):
        raise InputError(
            f"{type(model).__name__}.decode gave logits of shape {tuple(logits.shape)}; expected {expected}: "
            "rows, tokens, vocabulary"
        )
    own = not isinstance(model, Transformer)  # who may go on using them
    return log_probabilities(logits[:, 0].clone() if own else logits[:, 0]), state


def log_probabilities(logits: Tensor) -> Tensor:
    """Of all that can be said: padding, the last, cannot.  (R, V) -> (R, V), and the logits are no more."""
    logits[:, -1] = -torch.inf
    return F.log_softmax(logits.float(), dim=-1)


def batches(jobs: Sequence[Job], config: SearchConfig) -> Iterator[list[Job]]:
    """Batches, the longest sources first, that cannot need more than `BATCH_TOKENS` tokens."""
    waiting = sorted(jobs, key=lambda job: len(job.source), reverse=True)
    while waiting:
        size = max(1, BATCH_TOKENS // (len(waiting[0].source) + waiting[0].limit * config.width))
        yield waiting[:size]
        waiting = waiting[size:]


@contextmanager
def _evaluating(models: Sequence[nn.Module]) -> Iterator[None]:
    """Without dropout, and afterwards as before: a model may be translating in the middle of its training."""
    training = [model.training for model in models]
    for model in models:
        if model.training:
            model.eval()
    try:
        yield
    finally:
        for model, before in zip(models, training, strict=True):
            if before:
                model.train()
