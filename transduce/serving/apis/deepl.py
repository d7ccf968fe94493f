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
from transduce.translation.sentences import Split

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
# Where the values of `split_sentences` split a text. In HTML, the end of a line is a space.
SPLITS: dict[Any, Split] = {
    **dict.fromkeys(("0", 0), "nothing"),
    **dict.fromkeys(("1", 1), "lines"),
    "nonewlines": "sentences",
}
_YES = (True, 1, "true", "1")
_NO = (False, 0, "false", "0")
# The values of options that are understood, or change nothing here: formatting is always preserved.
CHOICES: dict[str, tuple[Any, ...]] = {
    "formality": ("default", "prefer_more", "prefer_less"),
    "model_type": ("quality_optimized", "prefer_quality_optimized", "latency_optimized"),
    "outline_detection": _YES,
    "preserve_formatting": (*_YES, *_NO),
    "split_sentences": (*SPLITS, True, False),
    "tag_handling": ("xml", "html"),
    "tag_handling_version": ("v1", "v2"),
}
NOT_GIVEN = ("", None)


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
    split = _split(parameters)
    is_markup = parameters.get("tag_handling") not in NOT_GIVEN
    service.check_texts(request, texts)

    def work() -> tuple[list[multilingual.Work], list[Translation]]:
        planned = multilingual.plan(service.models, texts, source, target)
        return planned, multilingual.carry_out(planned, split=split, is_markup=is_markup)

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
        if any(value not in NOT_GIVEN for value in parameters.all(name)):
            raise RequestError(
                400, f"Parameter '{name}' not supported by this server; leave it out."
            )
    for name, choices in CHOICES.items():
        if parameters.get(name) not in (*choices, *NOT_GIVEN):
            known = ", ".join(choice for choice in choices if isinstance(choice, str))
            raise RequestError(400, f"Value for '{name}' not supported: expected one of {known}.")
    _optional(parameters, "context")  # it may help other models


def _split(parameters: Parameters) -> Split:
    """Return where texts are split."""
    value = parameters.get("split_sentences")
    if value not in NOT_GIVEN:
        return SPLITS[value]
    return "sentences" if parameters.get("tag_handling") == "html" else "lines"


ROUTES = [
    Route("/v2/translate", translate, methods=["POST"]),
    Route("/v2/languages", list_languages, methods=["GET", "POST"]),
    Route("/v2/usage", show_usage, methods=["GET", "POST"]),
]
