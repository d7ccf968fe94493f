"""Our own API under /v1: models, translation with all details, inspection, and training runs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from transduce.errors import InputError
from transduce.monitoring import run_summary
from transduce.serving.models import ServedModel
from transduce.serving.schema import TranslateRequest, read_body
from transduce.serving.security import RequestError
from transduce.serving.service import Emit, Service
from transduce.translation.result import Sentence, Translation

EVENT_STREAM = "text/event-stream"


async def list_models(request: Request) -> Response:
    """Return all models that are served."""
    models = _service(request).models
    return JSONResponse({"models": [_describe(m, m is models.default) for m in models.served]})


async def translate(request: Request) -> Response:
    """Translate texts, and return the answer at once or as a stream of sentences."""
    service = _service(request)
    service.gate.admit(request)
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
        )
        return {"model": model.name, "translations": [_translation(t) for t in translations]}

    if body.stream:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(service.stream(work), media_type=EVENT_STREAM, headers=headers)
    return JSONResponse(await service.run(request, work))


async def list_runs(request: Request) -> Response:
    """Return the state of every training run."""
    service = _service(request)
    service.gate.admit(request)
    runs = await service.run(request, lambda: run_summary.summaries(service.settings.runs))
    return JSONResponse({"runs": runs})


async def show_run(request: Request) -> Response:
    """Return the curves and samples of one training run."""
    service = _service(request)
    service.gate.admit(request)
    folder = service.settings.runs

    def work() -> dict[str, Any]:
        try:
            return run_summary.summary(run_summary.find_run(folder, request.path_params["name"]))
        except InputError as error:
            raise RequestError(404, str(error)) from None

    return JSONResponse(await service.run(request, work))


def find_model(service: Service, name: str | None) -> ServedModel:
    """Return a model by its name, or refuse the request."""
    try:
        return service.models.named(name)
    except InputError as error:
        raise RequestError(404, str(error)) from None


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _describe(model: ServedModel, is_default: bool) -> dict[str, Any]:
    return {
        "name": model.name,
        "source_language": model.source_language,
        "target_language": model.target_language,
        "default": is_default,
        "parameters": model.parameters,
        "engine": model.engine,
        "can_inspect": True,
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
    Route("/v1/runs", list_runs, methods=["GET"]),
    Route("/v1/runs/{name}", show_run, methods=["GET"]),
]
