"""The models that are served: bundles that are loaded once, found by name or by languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.config import SearchConfig
from transduce.cores import available_cores
from transduce.data.languages import base_language
from transduce.data.tokenizer import EOS
from transduce.engines.choose import MOST_WORKERS, EngineName, Precision, choose_engine
from transduce.errors import BundleError, ConfigError, InputError, TransduceError
from transduce.serving.queue.batching import BatchingEngine
from transduce.serving.queue.calls import Queue
from transduce.serving.queue.turns import QueueSettings
from transduce.storage.bundle import Bundle, load_bundle
from transduce.storage.installed import default_bundles, find_bundle
from transduce.translation.translator import Translator

if TYPE_CHECKING:  # importing torch takes seconds, and CTranslate2 does not need it
    from transduce.engines.torch import Engine

Say = Callable[[str], None]
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")


@dataclass(frozen=True)
class ServedModel:
    """A model with its translator. A language is None if the bundle does not name one."""

    name: str
    translator: Translator
    direct: Translator  # without the queue, for inspections
    engine: str
    source_language: str | None
    target_language: str | None
    parameters: int

    @property
    def queue(self) -> Queue:
        """The queue in front of the model's engine."""
        assert isinstance(self.translator.engine, Queue)
        return self.translator.engine

    @property
    def pair(self) -> str:
        """The languages, such as en-de."""
        return f"{self.source_language or 'unknown'}-{self.target_language or 'unknown'}"


@dataclass
class Models:
    """All models that are served, the default one first, and why others are not."""

    served: list[ServedModel] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # by name: what is wrong with a bundle

    @property
    def default(self) -> ServedModel:
        """The model of requests that name none."""
        return self.served[0]

    def named(self, name: str | None) -> ServedModel:
        """Return the model of this name, or without a name the default."""
        if name is None:
            return self.default
        for model in self.served:
            if model.name == name:
                return model
        if name in self.refused:
            raise InputError(f"the model {name!r} could not be loaded: {self.refused[name]}")
        names = ", ".join(model.name for model in self.served)
        raise InputError(f"there is no model {name!r}; the models are: {names}")

    def for_languages(self, source: str, target: str) -> ServedModel | None:
        """Return the first model from one language to the other; regions may differ."""
        for model in self.served:
            if model.source_language is None or model.target_language is None:
                continue
            if (base_language(model.source_language), base_language(model.target_language)) == (
                base_language(source),
                base_language(target),
            ):
                return model
        return None

    def are_alive(self) -> bool:
        """Return whether all models can be searched with."""
        return all(model.queue.is_alive for model in self.served)

    def close(self) -> None:
        """Stop the queues of all models."""
        for model in self.served:
            model.queue.close()


def load_models(
    places: Sequence[Path],
    *,
    engine: EngineName = "auto",
    device: str | None = None,
    precision: Precision = "auto",
    search: Callable[[SearchConfig], SearchConfig] | None = None,
    queue: QueueSettings | None = None,
    workers: int | None = None,
    say: Say = print,
) -> Models:
    """Load bundles; without any, those of the package, or else the newest of ./runs.

    A bundle that cannot be loaded is reported, and the others are served. `workers` is the number
    of batches that CTranslate2 translates at the same time.
    """
    if workers is None:
        workers = min(available_cores(), MOST_WORKERS)
    if workers < 1:
        raise ConfigError(f"--workers is {workers}; expected at least 1")
    models = Models()
    places = places or default_bundles()
    for place in places:
        name = _unused_name(place, models)
        try:
            bundle = load_bundle(find_bundle(place))
            inner = choose_engine([bundle], engine, device, precision, workers=workers)
            models.served.append(with_queue(bundle, name, inner, search, queue or QueueSettings()))
        except (TransduceError, OSError) as error:
            if len(places) <= 1:
                raise
            models.refused[name] = str(error)
            say(f"{name} is not served: {error}")
    if not models.served:
        raise BundleError("none of the models can be served; the reasons are above")
    _report_languages(models, say)
    for model in models.served:
        _warm_up(model)
    return models


def with_queue(
    bundle: Bundle,
    name: str,
    engine: Engine,
    search: Callable[[SearchConfig], SearchConfig] | None,
    queue: QueueSettings,
) -> ServedModel:
    """Return a model with a queue in front of its engine."""
    direct = Translator(bundle, engine=engine, search=search)
    batching = BatchingEngine(engine, queue)
    data = bundle.recipe.data
    return ServedModel(
        name=name,
        translator=Translator(bundle, engine=batching, search=search),
        direct=direct,
        engine=_engine_name(engine),
        source_language=_known(data.source_language),
        target_language=_known(data.target_language),
        parameters=bundle.count_parameters(),
    )


def _warm_up(model: ServedModel) -> None:
    """Let a GPU compile and record its work, which takes longer than all searches that follow.

    This depends on how many sentences begin at the same time, rounded up to a power of two. It is
    compiled at the first time, and recorded at the second.
    """
    if not model.queue.is_streaming:
        return
    from transduce.engines.cuda.continuous_batching import STREAM_PLACES  # needs Triton

    count = 1
    while count <= STREAM_PLACES:
        for _ in range(2):
            model.queue.search([[EOS]] * count, model.translator.search, token_scores=False)
        count *= 2


def _known(language: str) -> str | None:
    """Return the code of a language, or None for unknown ones: und, xx or an empty string."""
    if not _LANGUAGE.fullmatch(language) or base_language(language) in ("und", "xx", "mul"):
        return None
    return language


def _report_languages(models: Models, say: Say) -> None:
    """Say which models only /v1 can use, because their languages are unknown or taken."""
    for number, model in enumerate(models.served):
        if model.source_language is None or model.target_language is None:
            say(
                f"the languages of {model.name} are not known ({model.pair}), so it can only be "
                "requested by its name from /v1; set data.source_language and data.target_language"
            )
            continue
        for other in models.served[:number]:
            if other.pair == model.pair:
                say(
                    f"{other.name} and {model.name} both translate {model.pair}; {other.name} is "
                    f"used unless a request to /v1 names {model.name}"
                )
                break


def _unused_name(folder: Path, models: Models) -> str:
    """Return the name of a bundle: that of its run, or else of its folder."""
    path = folder.resolve()
    name = path.parent.name if path.name in ("best", "last") else path.name
    taken = {*models.refused, *(model.name for model in models.served)}
    number = 2
    unused = name
    while unused in taken:
        unused = f"{name}-{number}"
        number += 1
    return unused


def _engine_name(engine: object) -> str:
    return type(engine).__name__.removesuffix("Engine").lower()
