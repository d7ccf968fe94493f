"""The API of LibreTranslate, so that its clients work unchanged."""

from __future__ import annotations

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transduce.data.languages import base_language
from transduce.errors import printable
from transduce.serving.apis import multilingual
from transduce.serving.apis.languages import Detection, detect, name_of, targets
from transduce.serving.apis.parameters import Parameters, read_parameters
from transduce.serving.refusals import RequestError
from transduce.serving.service import Service, service_of
from transduce.translation.documents import FORMATS
from transduce.translation.result import Translation
from transduce.translation.sentences import Split

AUTO = "auto"
MOST_ALTERNATIVES = 15
TEXT_FORMATS = ("text", "html")


async def translate(request: Request) -> Response:
    """Translate a text or a list of them."""
    service = service_of(request)
    parameters = await read_parameters(request)
    await admit(request, parameters)
    texts, is_list = _read_texts(parameters)
    source = read_language(service, parameters, "source")
    target = read_language(service, parameters, "target")
    is_html = _read_format(parameters) == "html"
    split: Split = "sentences" if is_html else "lines"  # in HTML, the end of a line is a space
    alternatives = _alternatives(parameters)
    service.check_texts(request, texts, too_much=400)
    check_pair(service, source, target)

    def work() -> tuple[list[multilingual.Work], list[Translation]]:
        known_source = None if source == AUTO else source
        planned = multilingual.plan(service.models, texts, known_source, target)
        return planned, multilingual.carry_out(planned, alternatives + 1, split, is_markup=is_html)

    planned, translations = await service.run(request, work)
    answer: dict[str, list[Any]] = {"translatedText": [t.text for t in translations]}
    if source == AUTO:
        answer["detectedLanguage"] = [_detected(item.detection) for item in planned]
    if alternatives:
        answer["alternatives"] = [_others(translation) for translation in translations]
    if is_list:
        return JSONResponse(answer)
    return JSONResponse({name: values[0] for name, values in answer.items()})


async def detect_language(request: Request) -> Response:
    """Return the likely languages of a text."""
    service = service_of(request)
    parameters = await read_parameters(request)
    await admit(request, parameters)
    texts, _ = _read_texts(parameters)
    service.check_texts(request, texts, too_much=400)
    text = "\n".join(texts)
    found = await service.run(request, lambda: detect(text, [*targets(service.models)]))
    return JSONResponse([_detected(item) for item in found or [Detection("en", 0.0)]])


async def list_languages(request: Request) -> Response:
    """Return all languages, each with those it can be translated to."""
    service = service_of(request)
    known = targets(service.models)
    return JSONResponse(
        [
            {"code": language, "name": name_of(language), "targets": found}
            for language, found in known.items()
        ]
    )


async def show_settings(request: Request) -> Response:
    """Return what the page of LibreTranslate needs to know."""
    service = service_of(request)
    default = service.models.default
    source = default.source_language or "en"
    target = default.target_language or "en"
    return JSONResponse(
        {
            "charLimit": service.settings.max_characters,
            "frontendTimeout": 500,
            "apiKeys": service.gate.needs_key,
            "keyRequired": service.gate.needs_key,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": [*FORMATS],
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }
    )


async def refuse_suggestion(request: Request) -> Response:
    """Answer as a server of LibreTranslate without suggestions."""
    raise RequestError(403, "Suggestions are disabled on this server.")


async def admit(request: Request, parameters: Parameters) -> None:
    """Check the key, which clients send under two names, or as null."""
    service = service_of(request)
    keys = [parameters.get("api_key"), parameters.get("apiKey")]
    if not all(isinstance(key, str | None) for key in keys):
        raise RequestError(400, "Invalid request: api_key must be a string")
    await service.gate.admit(request, keys[0] or keys[1], missing=400)


def _required(parameters: Parameters, name: str) -> Any:
    value = parameters.get(name)
    if value is None or value == "" or value == []:
        raise RequestError(400, f"Invalid request: missing {name} parameter")
    return value


def _read_texts(parameters: Parameters) -> tuple[list[str], bool]:
    """Return the texts, and whether they are a list: one in JSON, or several q in a form."""
    texts = parameters.all("q")
    is_list = len(texts) > 1 or isinstance(_required(parameters, "q"), list)
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "Invalid request: q must be a string or a list of strings")
    return texts, is_list


def read_language(service: Service, parameters: Parameters, name: str) -> str:
    """Return the code of a language that some model knows, or "auto"."""
    value = _required(parameters, name)
    if not isinstance(value, str):
        raise RequestError(400, f"Invalid request: {name} must be a language code")
    language = value.strip().lower()
    if language != AUTO and base_language(language) not in targets(service.models):
        raise RequestError(400, f"{printable(value[:40])} is not supported")
    return language if language == AUTO else base_language(language)


def check_pair(service: Service, source: str, target: str) -> None:
    """Refuse languages that no model translates."""
    if target == AUTO:
        raise RequestError(400, "auto is not supported as a target")
    if source != AUTO:
        multilingual.check_pair(service.models, source, target)


def _read_format(parameters: Parameters) -> str:
    """Return the format of the texts."""
    text_format = parameters.get("format")
    if text_format in (None, ""):
        return "text"
    if text_format not in TEXT_FORMATS:
        raise RequestError(400, f"{printable(str(text_format)[:40])} format is not supported")
    return str(text_format)


def _alternatives(parameters: Parameters) -> int:
    """Return how many translations to add besides the best one."""
    value = parameters.get("alternatives") if "alternatives" in parameters else 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # in JSON, 2.0 is an integer, too
    is_number = isinstance(value, int | str) and not isinstance(value, bool)
    if not is_number or not re.fullmatch(r"-?[0-9]{1,9}", str(value)):
        raise RequestError(400, "Invalid request: alternatives parameter is not a number")
    count = int(value)
    if count < 0:
        raise RequestError(400, "Invalid request: alternatives parameter is negative")
    if count > MOST_ALTERNATIVES:
        raise RequestError(
            400,
            f"Invalid request: requested alternatives ({count}) exceeds limit "
            f"({MOST_ALTERNATIVES})",
        )
    return count


def _detected(detection: Detection) -> dict[str, Any]:
    return {"confidence": detection.confidence, "language": detection.language}


def _others(translation: Translation) -> list[str]:
    """Return the other translations, without repetitions."""
    texts = dict.fromkeys(text for text, _ in translation.n_best)
    texts.pop(translation.text, None)
    return [*texts]


ROUTES = [
    Route("/translate", translate, methods=["POST"]),
    Route("/detect", detect_language, methods=["POST"]),
    Route("/languages", list_languages, methods=["GET", "POST"]),
    Route("/frontend/settings", show_settings, methods=["GET"]),
    Route("/suggest", refuse_suggestion, methods=["POST"]),
]
