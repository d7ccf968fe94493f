"""Running a model in torch: sorted batches under a token budget, searched step by step.

A sentence's translation does not depend on the other sentences in its batch. Matrix products of
different shapes round differently in the last bits, so scores in a batch differ from those of a
sentence alone, but by far less than `NOISE`. A search records how close its closest decision was
(`Hypothesis.margin`). Where that is less than `NOISE`, the sentence is searched again, alone. So in
float32 every sentence is translated as it would be alone, on any device and with any kernel.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from transduce.config import ModelConfig, SearchConfig
from transduce.data.batches import up_to
from transduce.engines.model_calls import next_token, refuse_other_protocol, start
from transduce.errors import BundleError, ConfigError, lacks_memory
from transduce.kernels.accelerate import Snapshot, accelerate, deviation
from transduce.model import Tokens, Transformer
from transduce.search.hypothesis import Hypothesis, Job
from transduce.search.search import Ensemble, ensemble, search, sentence_seed
from transduce.storage.bundle import Bundle

if TYPE_CHECKING:
    from transduce.engines.cuda.continuous_batching import Feed

BATCH_TOKENS = 16_384  # source tokens and possible target tokens of all hypotheses in a batch
# In half precision source rows are padded to a multiple of this: attention then adds up in the same
# order whatever the padding.
WIDTH = 32
NOISE = 2e-4  # float32 scores in a batch differ by less from those of a sentence alone

logger = logging.getLogger("transduce")

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Engine(Protocol):
    """The protocol of all engines, which translate token ids."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] = (),
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each source, best first.

        Sources are token ids that end with the end of the sentence; `prefixes` are forced first
        tokens. Without `token_scores` an engine may leave out `token_log_probs`.
        """


def resolve_device(name: str | None) -> torch.device:
    """Return the device of this name; by default a GPU if there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reason = ""
    try:
        device = torch.device(name)
        # Other devices have no memory, or need a library of their own.
        if device.type in ("cpu", "cuda", "mps"):
            return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        # Some messages list every device that torch was ever built for.
        message = str(error).partition("\n")[0].partition(". ")[0]
        reason = f" ({message})" if len(message) < 100 else ""
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    available = ", ".join(["cpu", *gpus])
    raise ConfigError(
        f"device is {name!r}, which torch cannot use here{reason}; available: {available}"
    )


def load_model(
    bundle: Bundle,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    build: Callable[[ModelConfig], nn.Module] | None = None,
) -> Any:
    """Return the bundle's model for inference; `build` makes a user's own model from its config."""
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
        if lacks_memory(error):
            raise
        reason = " ".join(str(error).split()[:40])
        raise BundleError(
            f"the weights of {bundle.path} do not fit the model {type(model).__name__} ({reason}); "
            "use the model that the bundle was trained with"
        ) from None
    return model.to(device).eval().requires_grad_(False)


class TorchEngine:
    """Searches with one model on a device, or with the mean probability of several.

    Several models must share a vocabulary. A model is a `Transformer`, or any module with `config`,
    `encode` and `decode` like it. Its weights are read at each call and not changed, but its
    standard parts get fused forms (`kernels.accelerate`). With `frozen`, weights may be stored in
    another layout, and later changes of them have no effect.
    """

    def __init__(
        self, *models: nn.Module, device: torch.device | str = "cpu", frozen: bool = False
    ) -> None:
        for model in models:
            refuse_other_protocol(model)
        self.models: tuple[Any, ...] = models
        # "cuda" becomes "cuda:0", say: the current device may differ between threads.
        self.device = torch.empty(0, device=device).device
        self.dtype = next(
            weight.dtype for weight in models[0].parameters() if weight.is_floating_point()
        )
        self._frozen = frozen
        # Searches change shared state, such as buffers on a GPU: one thread at a time.
        self._turn = threading.Lock()
        self._snapshots: list[Snapshot] = []
        self._deviation: str | None = None  # how a model differs from the standard one
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
        """Return the n best hypotheses of each source, best first."""
        jobs = _jobs(sources, prefixes, config)
        is_float32 = self.dtype == torch.float32
        # In the tail of a distribution a random number is always close to the next token, so every
        # sample would be doubtful.
        one_by_one = is_float32 and config.temperature > 0
        groups = [[job] for job in jobs] if one_by_one else [jobs]

        found: dict[int, list[Hypothesis]] = {}
        with self.exclusive():
            for group in groups:
                found.update(self._search(group, config, token_scores))

            # Search again, alone, the sentences for which rounding may have decided.
            if is_float32 and len(jobs) > 1 and not one_by_one:
                doubtful = [job for job in jobs if found[job.number][0].margin < NOISE]
                for job in doubtful:
                    found.update(self._search([job], config, token_scores))
        return [found[number] for number in range(len(sources))]

    @contextmanager
    def exclusive(self) -> Iterator[tuple[Any, ...]]:
        """Give the models, in their fast forms and in evaluation mode, to one thread at a time."""
        with self._turn, _evaluating(self.models):
            self._accelerate()
            yield self.models

    def can_stream(self) -> bool:
        """Return whether jobs can join a running search: on a GPU, in half precision."""
        if self.device.type != "cuda" or len(self.models) > 1 or self.dtype == torch.float32:
            return False
        with self._turn:
            self._accelerate()
        return self._deviation is None

    @torch.inference_mode()
    def stream(
        self, feed: Feed, config: SearchConfig, *, token_scores: bool = True
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the number and the hypotheses of each job of a feed, until none waits."""
        from transduce.engines.cuda import continuous_batching  # needs Triton

        with self._turn, _evaluating(self.models), torch.cuda.device(self.device):
            self._accelerate()
            yield from continuous_batching.stream(
                self.models[0], feed, config, self._graphs, token_scores=token_scores
            )

    def _search(
        self, jobs: Sequence[Job], config: SearchConfig, token_scores: bool
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the number and the hypotheses of each job."""
        # On a GPU the standard model has a search of its own.
        if self.device.type == "cuda" and len(self.models) == 1 and not self._deviation:
            from transduce.engines.cuda import continuous_batching  # needs Triton

            with torch.cuda.device(self.device):
                yield from continuous_batching.search(
                    self.models[0], jobs, config, self._graphs, token_scores=token_scores
                )
            return

        # All other models are searched batch by batch.
        model_config = self.models[0].config
        step = ensemble([partial(next_token, model) for model in self.models])
        for batch in batches(jobs, config):
            width = max(len(job.source) for job in batch)
            if self.dtype != torch.float32:
                width = up_to(width, WIDTH)
            rows = [[job.source] for job in batch]
            source = Tokens.packed(rows, model_config.source_pad, width).to(self.device)
            results = search(
                step,
                Ensemble(tuple(start(model, source) for model in self.models)),
                [job.limit for job in batch],
                model_config.pad,
                config,
                prefixes=[job.prefix for job in batch],
                seeds=[job.seed for job in batch],
                device=self.device,
            )
            yield from zip((job.number for job in batch), results, strict=True)

    def _accelerate(self) -> None:
        """Give the models their fused forms, again if parts, hooks or weights have changed."""
        if self.device.type != "cuda" and not self._frozen:
            return
        if self._snapshots and all(snapshot.holds() for snapshot in self._snapshots):
            return
        self._graphs.clear()
        for model in self.models:
            accelerate(model, self.device, frozen=self._frozen)

        # A CPU model that is frozen has copies of its weights, which must be checked for changes.
        has_copies = self._frozen and self.device.type == "cpu"
        self._snapshots = [Snapshot(model, versions=has_copies) for model in self.models]

        difference = deviation(self.models[0])
        if self.device.type == "cuda" and difference and difference != self._deviation:
            logger.warning(
                "the model is not a standard Transformer (%s), so it is searched without CUDA "
                "graphs, which is slower",
                difference,
            )
        self._deviation = difference


def _jobs(
    sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], config: SearchConfig
) -> list[Job]:
    jobs = []
    for number, source in enumerate(sources):
        jobs.append(make_job(number, source, prefixes[number] if prefixes else (), config))
    return jobs


def make_job(
    number: int, source: Sequence[int], prefix: Sequence[int], config: SearchConfig
) -> Job:
    """Return the job of searching one source."""
    seed = sentence_seed(config.seed, source) if config.temperature > 0 else 0
    return Job(number, source, config.limit(len(source)), prefix, seed)


def batches(jobs: Sequence[Job], config: SearchConfig) -> Iterator[list[Job]]:
    """Yield batches of at most `BATCH_TOKENS` possible tokens, the longest sources first."""
    waiting = sorted(jobs, key=lambda job: len(job.source), reverse=True)
    while waiting:
        longest = waiting[0]
        tokens_per_job = len(longest.source) + longest.limit * config.width
        size = max(1, BATCH_TOKENS // tokens_per_job)
        yield waiting[:size]
        waiting = waiting[size:]


@contextmanager
def _evaluating(models: Sequence[nn.Module]) -> Iterator[None]:
    """Switch models to evaluation mode, and back afterwards.

    A model may translate in the middle of its training.
    """
    in_training = [model for model in models if model.training]
    for model in in_training:
        model.eval()
    try:
        yield
    finally:
        for model in in_training:
            model.train()
