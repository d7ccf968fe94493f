"""Our own API under /v1: models, translation with all details, inspection, and training runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from transduce.errors import InputError
from transduce.monitoring import run_summary
from transduce.serving.apis.schema import (
    AttentionRequest,
    TranslateRequest,
    WalkthroughRequest,
    read_body,
)
from transduce.serving.models import ServedModel
from transduce.serving.refusals import RequestError
from transduce.serving.service import Emit, Service, service_of
from transduce.translation.result import Sentence, Translation

EVENT_STREAM = "text/event-stream"
MOST_INSPECTED = 2_000  # characters
Result = TypeVar("Result")


async def list_models(request: Request) -> Response:
    """Return all models that are served."""
    models = service_of(request).models
    return JSONResponse({"models": [_describe(m, m is models.default) for m in models.served]})


async def translate(request: Request) -> Response:
    """Translate texts, and return the answer at once or as a stream of sentences."""
    service = service_of(request)
    await service.gate.admit(request)
    body = await read_body(request, TranslateRequest)
    model = find_model(service, body.model)
    texts = [body.text] if isinstance(body.text, str) else body.text
    service.check_texts(request, texts)

    def work(emit: Emit | None = None) -> dict[str, Any]:
        def on_sentence(number: int, place: int, count: int, sentence: Sentence) -> None:
            assert emit
            where = {"index": number, "sentence": place, "of": count}
            emit("sentence", {**where, **_sentence(sentence)})

        translations = model.translator.translate(
            texts,
            alignments=body.alignments,
            confidences=body.confidences,
            n_best=body.n_best,
            glossary=body.glossary,
            on_sentence=on_sentence if emit else None,
            split=body.split,
        )
        return {"model": model.name, "translations": [_translation(t) for t in translations]}

    if body.stream:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(service.stream(work), media_type=EVENT_STREAM, headers=headers)
    return JSONResponse(await service.run(request, work))


async def show_attention(request: Request) -> Response:
    """Return what the model and the search did for one sentence."""
    service = service_of(request)
    await service.gate.admit(request)
    body = await read_body(request, AttentionRequest)
    model = find_model(service, body.model)
    _check_inspected(request, service, body.text)

    def work() -> dict[str, Any]:
        from transduce.inspection.inspect import inspect  # needs torch

        service.limit_torch()
        options: dict[str, Any] = {"sentence": body.sentence, "without": body.without}
        return inspect(model.direct, body.text, **options).to_dict()

    return JSONResponse(await service.run(request, _not_found(work)))


async def show_walkthrough(request: Request) -> Response:
    """Return every step of the translation of one sentence, with its numbers."""
    service = service_of(request)
    await service.gate.admit(request)
    body = await read_body(request, WalkthroughRequest)
    model = find_model(service, body.model)
    _check_inspected(request, service, body.text)

    def work() -> dict[str, Any]:
        from transduce.inspection.walkthrough.steps import walkthrough  # needs torch

        service.limit_torch()
        return walkthrough(model.direct, body.text, layer=body.layer, head=body.head).to_dict()

    return JSONResponse(await service.run(request, _not_found(work)))


async def list_runs(request: Request) -> Response:
    """Return the state of every training run."""
    service = service_of(request)
    await service.gate.admit(request)
    runs = await service.run(request, lambda: run_summary.summaries(service.settings.runs))
    return JSONResponse({"runs": runs})


async def show_run(request: Request) -> Response:
    """Return the curves and samples of one training run."""
    service = service_of(request)
    await service.gate.admit(request)
    folder = service.settings.runs

    def work() -> dict[str, Any]:
        return run_summary.summary(run_summary.find_run(folder, request.path_params["name"]))

    return JSONResponse(await service.run(request, _not_found(work)))


def _check_inspected(request: Request, service: Service, text: str) -> None:
    """Refuse a text whose inspection would be too large for a browser."""
    service.check_texts(request, [text])
    if not text.strip():
        raise RequestError(400, "the text is blank; expected at least one word")
    if len(text) > MOST_INSPECTED:
        raise RequestError(
            413, f"the text has {len(text)} characters; at most {MOST_INSPECTED} can be inspected"
        )


def _not_found(work: Callable[[], Result]) -> Callable[[], Result]:
    """Return a function whose mistakes are things that do not exist: a head, a sentence."""

    def run() -> Result:
        try:
            return work()
        except InputError as error:
            raise RequestError(404, str(error)) from None

    return run


def find_model(service: Service, name: str | None) -> ServedModel:
    """Return a model by its name, or refuse the request."""
    try:
        return service.models.named(name)
    except InputError as error:
        raise RequestError(404, str(error)) from None


def _describe(model: ServedModel, is_default: bool) -> dict[str, Any]:
    return {
        "name": model.name,
        "source_language": model.source_language,
        "target_language": model.target_language,
        "default": is_default,
        "parameters": model.parameters,
        "engine": model.engine,
    }


def _translation(translation: Translation) -> dict[str, Any]:
    return {
        "text": translation.text,
        "score": round(translation.score, 4),
        "n_best": _choices(translation.n_best),
        "notices": list(translation.notices),
        "sentences": [_sentence(sentence) for sentence in translation.sentences],
    }


def _sentence(sentence: Sentence) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "source": sentence.source,
        "text": sentence.text,
        "score": round(sentence.score, 4),
        "n_best": _choices(sentence.n_best),
        "before": sentence.before,
    }
    if sentence.alignment:
        answer["source_words"] = list(sentence.alignment.source)
        answer["target_words"] = list(sentence.alignment.target)
        answer["alignment"] = [list(link) for link in sentence.alignment.links]
    if sentence.tokens:
        answer["tokens"] = [
            {"text": token.text, "probability": round(token.confidence, 4)}
            for token in sentence.tokens
        ]
    return answer


def _choices(n_best: tuple[tuple[str, float], ...]) -> list[dict[str, Any]]:
    return [{"text": text, "score": round(score, 4)} for text, score in n_best]


ROUTES = [
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/translate", translate, methods=["POST"]),
    Route("/v1/attention", show_attention, methods=["POST"]),
    Route("/v1/walkthrough", show_walkthrough, methods=["POST"]),
    Route("/v1/runs", list_runs, methods=["GET"]),
    Route("/v1/runs/{name}", show_run, methods=["GET"]),
]
