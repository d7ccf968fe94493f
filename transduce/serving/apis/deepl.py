"""The API of DeepL, version 2, so that its clients work with our address."""

from __future__ import annotations

import itertools
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transduce.data.languages import base_language
from transduce.serving.apis import multilingual
from transduce.serving.apis.languages import name_of, targets
from transduce.serving.apis.parameters import Parameters, read_parameters
from transduce.serving.observation import Metrics
from transduce.serving.refusals import RequestError
from transduce.serving.service import Service, service_of
from transduce.translation.result import Translation

NO_LIMIT = 1_000_000_000_000  # characters; clients expect a limit
# Options that would change a translation: a client that sends one must not get another result.
UNSUPPORTED = (
    "glossary_id",
    "glossary_ids",
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "ignore_tags",
    "splitting_tags",
    "non_splitting_tags",
)
# The values of other options that change nothing here.
FORMALITIES = ("default", "prefer_more", "prefer_less", "", None)
TAG_HANDLINGS = ("xml", "html", "", None)
OUTLINE_DETECTIONS = (True, 1, "true", "1", "", None)


async def translate(request: Request) -> Response:
    """Translate a list of texts."""
    service = service_of(request)
    parameters = await read_parameters(request)
    await _admit(request, parameters)
    texts = parameters.all("text")
    if not texts:
        raise RequestError(400, "Parameter 'text' not specified.")
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "Value for 'text' not supported: expected strings.")
    source, target = _languages(service, parameters)
    _check_options(parameters)
    service.check_texts(request, texts)

    def work() -> tuple[list[multilingual.Work], list[Translation]]:
        planned = multilingual.plan(service.models, texts, source, target)
        return planned, multilingual.carry_out(planned)

    planned, translations = await service.run(request, work)
    return JSONResponse(
        {
            "translations": [
                {
                    "detected_source_language": item.detection.language.upper(),
                    "text": translation.text,
                    "billed_characters": len(item.text),
                }
                for item, translation in zip(planned, translations, strict=True)
            ]
        }
    )


async def list_languages(request: Request) -> Response:
    """Return the languages to translate from, or to translate to."""
    service = service_of(request)
    parameters = await read_parameters(request)
    await _admit(request, parameters)
    kind = parameters.get("type") or "source"
    if kind not in ("source", "target"):
        raise RequestError(400, "Value for 'type' not supported: expected source or target.")
    known = targets(service.models)
    found: set[str] = set()
    for source, reached in known.items():
        others = {*reached} - {source}
        found |= others if kind == "target" else ({source} if others else set())
    answer: list[dict[str, Any]] = []
    for language in sorted(found):
        entry: dict[str, Any] = {"language": language.upper(), "name": name_of(language)}
        if kind == "target":
            entry["supports_formality"] = False
        answer.append(entry)
    return JSONResponse(answer)


async def show_usage(request: Request) -> Response:
    """Return how many characters were translated since the start of the server."""
    parameters = await read_parameters(request)
    await _admit(request, parameters)
    metrics: Metrics = request.app.state.metrics
    return JSONResponse({"character_count": metrics.characters, "character_limit": NO_LIMIT})


async def _admit(request: Request, parameters: Parameters) -> None:
    """Check the key, which may be in the body."""
    key = _optional(parameters, "auth_key")
    await service_of(request).gate.admit(request, key, missing=403, scheme="DeepL-Auth-Key")


def _optional(parameters: Parameters, name: str) -> str | None:
    value = parameters.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestError(400, f"Value for '{name}' not supported: expected a string.")
    return value or None


def _languages(service: Service, parameters: Parameters) -> tuple[str | None, str]:
    """Return the source language, if it is given, and the target language, without regions."""
    known = targets(service.models)
    source = _optional(parameters, "source_lang")
    target = _optional(parameters, "target_lang")
    if target is None:
        raise RequestError(400, "Parameter 'target_lang' not specified.")
    target = base_language(target)
    if target not in {*itertools.chain.from_iterable(known.values())}:
        raise RequestError(400, "Value for 'target_lang' not supported.")
    if source is not None:
        source = base_language(source)
        if source not in known:
            raise RequestError(400, "Value for 'source_lang' not supported.")
        if target not in known[source]:
            raise RequestError(
                400, f"Value for 'target_lang' not supported: no model from {source} to {target}."
            )
    return source, target


def _check_options(parameters: Parameters) -> None:
    """Refuse options that would change the translation and are not supported."""
    for name in UNSUPPORTED:
        if any(value not in ("", None) for value in parameters.all(name)):
            raise RequestError(
                400, f"Parameter '{name}' not supported by this server; leave it out."
            )
    formality = parameters.get("formality")
    if formality in ("more", "less"):
        raise RequestError(
            400,
            f"Value for 'formality' not supported: the models have no formality; use default or "
            f"prefer_{formality}.",
        )
    if formality not in FORMALITIES:
        raise RequestError(
            400,
            "Value for 'formality' not supported: expected default, prefer_more or prefer_less.",
        )
    if parameters.get("tag_handling") not in TAG_HANDLINGS:
        raise RequestError(400, "Value for 'tag_handling' not supported: expected xml or html.")
    if parameters.get("outline_detection") not in OUTLINE_DETECTIONS:
        raise RequestError(
            400, "Value for 'outline_detection' not supported: it cannot be switched off."
        )


ROUTES = [
    Route("/v2/translate", translate, methods=["POST"]),
    Route("/v2/languages", list_languages, methods=["GET", "POST"]),
    Route("/v2/usage", show_usage, methods=["GET", "POST"]),
]
