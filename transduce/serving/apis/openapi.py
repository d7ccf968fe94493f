"""The description of the API in /openapi.json, for the models that are served."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from transduce.serving.apis import deepl, schema
from transduce.serving.apis.languages import targets
from transduce.serving.apis.libretranslate import AUTO, MOST_ALTERNATIVES, TEXT_FORMATS
from transduce.serving.apis.parameters import MULTIPART
from transduce.serving.service import Service

Json = dict[str, Any]
_REFERENCE = "#/components/schemas/{model}"
_STRING: Json = {"type": "string"}
_KINDS = (
    schema.TranslateRequest,
    schema.TranslateAnswer,
    schema.AttentionRequest,
    schema.WalkthroughRequest,
    schema.ModelsAnswer,
    schema.RunsAnswer,
    schema.ErrorAnswer,
)


def describe(service: Service, version: str) -> Json:
    """Return the description of all paths."""
    # Requests and answers of /v1; a request can only name models that are served.
    _, definitions = models_json_schema(
        [(kind, "validation") for kind in _KINDS], ref_template=_REFERENCE
    )
    schemas: Json = definitions["$defs"]
    names = [model.name for model in service.models.served]
    for kind in (schema.TranslateRequest, schema.AttentionRequest, schema.WalkthroughRequest):
        properties = schemas[kind.__name__]["properties"]
        properties["model"] = {"enum": [*names, None], "default": None}
    schemas["DeepLError"] = _object({"message": _STRING})
    schemas["Status"] = _object({"status": _STRING})

    return {
        "openapi": "3.1.0",
        "info": {"title": "transduce", "version": version, "summary": "Translation of texts."},
        "paths": {
            **_own_paths(),
            **_libretranslate_paths(service),
            **_deepl_paths(service),
            **_other_paths(),
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        **({"security": [{"key": []}]} if service.gate.needs_key else {}),
    }


def _own_paths() -> Json:
    event = _object({"event": {"enum": ["sentence", "done", "error"]}, "data": _STRING})
    return {
        "/v1/models": {"get": _operation("List the models.", "ModelsAnswer")},
        "/v1/translate": {
            "post": _operation(
                "Translate texts; with stream, send each sentence as an event.",
                "TranslateAnswer",
                body="TranslateRequest",
                other_types={"text/event-stream": {"schema": event}},
            )
        },
        "/v1/attention": {
            "post": _operation("Inspect a translation.", {}, body="AttentionRequest")
        },
        "/v1/walkthrough": {
            "post": _operation("Explain a translation.", {}, body="WalkthroughRequest")
        },
        "/v1/runs": {"get": _operation("List the training runs.", "RunsAnswer")},
        "/v1/runs/{name}": {
            "get": _operation("Show a training run.", {}, parameters=[_path_parameter("name")])
        },
    }


def _libretranslate_paths(service: Service) -> Json:
    known = targets(service.models)
    text: Json = {"type": "string", "minLength": 1}
    texts: Json = {"type": "array", "items": _STRING, "minItems": 1}
    number: Json = {"type": "integer", "minimum": 0, "maximum": MOST_ALTERNATIVES}
    digits: Json = {"type": "string", "pattern": "^([0-9]|1[0-5])$"}
    key: Json = {"type": ["string", "null"]}
    every_target = sorted({target for reached in known.values() for target in reached})
    pairs = [([AUTO], _translated(known)), *(([source], known[source]) for source in known)]
    body: Json = {
        "type": "object",
        "required": ["q", "source", "target"],
        "properties": {
            "q": {"anyOf": [text, texts]},
            "source": _STRING,
            "target": _STRING,
            "format": {"enum": [*TEXT_FORMATS, "", None]},
            "alternatives": {"anyOf": [number, digits]},
            "api_key": key,
            "apiKey": key,
        },
        "anyOf": [
            {"properties": {"source": {"enum": source}, "target": {"enum": reached}}}
            for source, reached in pairs
        ],
    }
    language = _object({"confidence": {"type": "number"}, "language": _STRING})
    answer: Json = {
        "type": "object",
        "required": ["translatedText"],
        "properties": {
            "translatedText": {"anyOf": [_STRING, _list(_STRING)]},
            "detectedLanguage": {"anyOf": [language, _list(language)]},
            "alternatives": {"anyOf": [_list(_STRING), _list(_list(_STRING))]},
        },
    }
    detect_body: Json = {
        "type": "object",
        "required": ["q"],
        "properties": {"q": {"anyOf": [text, texts]}, "api_key": key},
    }
    entry = _object({"code": _STRING, "name": _STRING, "targets": _list(_STRING)})
    languages = _operation("List the languages.", _list(entry))
    document: Json = {
        "type": "object",
        "required": ["file", "source", "target"],
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "source": {"enum": [AUTO, *known]},
            "target": {"enum": every_target},
            "api_key": _STRING,
        },
    }
    upload = _operation("Translate a document.", _object({"translatedFileUrl": _STRING}))
    upload["requestBody"] = {"required": True, "content": {MULTIPART: {"schema": document}}}
    return {
        "/translate": {"post": _operation("Translate (LibreTranslate).", answer, body=body)},
        "/translate_file": {"post": upload},
        "/download_file/{name}": {
            "get": _operation(
                "Return a translated document.",
                content={"application/octet-stream": {"schema": _STRING}},
                parameters=[_path_parameter("name")],
            )
        },
        "/suggest": {"post": _operation("Refuse a suggestion.", {"type": "object"})},
        "/detect": {"post": _operation("Detect a language.", _list(language), body=detect_body)},
        "/languages": {"get": languages, "post": languages},
        "/frontend/settings": {"get": _operation("Show the settings.", {"type": "object"})},
    }


def _deepl_paths(service: Service) -> Json:
    known = targets(service.models)
    every_target: set[str] = set()
    # Without a source language, it is detected.
    detected = {"target_lang": {"enum": [target.upper() for target in _translated(known)]}}
    choices: list[Json] = [
        {"properties": {"source_lang": {"enum": ["", None]}, **detected}},  # or none at all
    ]
    for source, reached in known.items():
        codes = [target.upper() for target in reached]
        every_target.update(codes)
        languages = {
            "source_lang": {"enum": [source.upper()]},
            "target_lang": {"enum": codes},
        }
        choices.append({"required": ["source_lang"], "properties": languages})
    empty: Json = {"enum": ["", None]}
    nothing: Json = {"anyOf": [empty, {"type": "array", "items": empty}]}
    body: Json = {
        "type": "object",
        "required": ["text", "target_lang"],
        "properties": {
            "text": {"anyOf": [_STRING, {"type": "array", "items": _STRING, "minItems": 1}]},
            "target_lang": {"enum": sorted(every_target)},
            "source_lang": {"type": ["string", "null"]},
            "auth_key": {"type": ["string", "null"]},
            "context": {"type": ["string", "null"]},
            **{name: {"enum": [*known, "", None]} for name, known in deepl.CHOICES.items()},
            **dict.fromkeys(deepl.UNSUPPORTED, nothing),
        },
        "anyOf": choices,
    }
    entry = {"type": "object", "required": ["language", "name"]}
    translation = _object(
        {
            "detected_source_language": _STRING,
            "text": _STRING,
            "billed_characters": {"type": "integer"},
        }
    )
    answer = _object({"translations": _list(translation)})
    kind = {"name": "type", "in": "query", "schema": {"enum": ["source", "target", ""]}}
    usage = _object({"character_count": {"type": "integer"}, "character_limit": {}})
    options: Json = {"error": "DeepLError"}
    listed = _operation("List the languages.", _list(entry), parameters=[kind], **options)
    counted = _operation("Count the characters.", usage, **options)
    return {
        "/v2/translate": {"post": _operation("Translate (DeepL).", answer, body=body, **options)},
        "/v2/languages": {"get": listed, "post": listed},
        "/v2/usage": {"get": counted, "post": counted},
    }


def _translated(known: dict[str, list[str]]) -> list[str]:
    """Return the languages that some model translates to: a text in any language may be sent."""
    found = {target for source, reached in known.items() for target in reached if target != source}
    return sorted(found)


def _other_paths() -> Json:
    page = {"text/html; charset=utf-8": {"schema": _STRING}}
    text = {"text/plain": {"schema": _STRING}}
    anything: Json = {"*/*": {}}
    name = [_path_parameter("name")]
    description = _operation("Return this description.", {"type": "object"})
    return {
        "/": {"get": _operation("Show the page.", content=page)},
        "/static/{name}": {"get": _operation("Return a file.", content=anything, parameters=name)},
        "/health": {"get": _operation("Say whether the process works.", "Status")},
        "/ready": {"get": _operation("Say whether to send requests.", "Status")},
        "/metrics": {"get": _operation("Return metrics for Prometheus.", content=text)},
        "/openapi.json": {"get": description},
        "/spec": {"get": description},
    }


def _operation(
    summary: str,
    answer: str | Json | None = None,
    *,
    body: str | Json | None = None,
    content: Json | None = None,
    other_types: Json | None = None,
    parameters: list[Json] | None = None,
    error: str = "ErrorAnswer",
) -> Json:
    """Return the description of one method of a path."""
    refused = {"description": "Refused.", "content": _json_content(error)}
    content = content or {**_json_content(answer or {}), **(other_types or {})}
    operation: Json = {
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": content},
            "4XX": refused,
            "503": {**refused, "description": "Too busy, or stopping; see Retry-After."},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(body)}
    if parameters:
        operation["parameters"] = parameters
    return operation


def _json_content(kind: str | Json) -> Json:
    reference = {"$ref": _REFERENCE.format(model=kind)} if isinstance(kind, str) else kind
    return {"application/json": {"schema": reference}}


def _object(properties: Json) -> Json:
    return {"type": "object", "required": [*properties], "properties": properties}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _path_parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _STRING}
