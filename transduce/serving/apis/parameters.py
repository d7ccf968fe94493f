"""The parameters of a request, wherever a client puts them: query string, form or JSON."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from transduce.serving.refusals import RequestError

MOST_FIELDS = 2_000
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


class Parameters:
    """The values of each name, in the order in which they were sent."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self._values: dict[str, list[Any]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def __contains__(self, name: str) -> bool:
        """Return whether the client sent this name."""
        return name in self._values

    def get(self, name: str) -> Any:
        """Return the last value of a name, or None."""
        return self._values[name][-1] if name in self._values else None

    def all(self, name: str) -> list[Any]:
        """Return all values of a name; a list in JSON is several."""
        values = []
        for value in self._values.get(name, []):
            values += value if isinstance(value, list) else [value]
        return values


async def read_parameters(request: Request) -> Parameters:
    """Return the parameters of the query string and of the body together."""
    pairs: list[tuple[str, Any]] = _fields(request.url.query)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == MULTIPART:
        async with request.form(max_files=0, max_fields=MOST_FIELDS) as form:
            pairs += [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    elif content_type == "application/json" or content_type.endswith("+json"):
        pairs += _json_object(await request.body()).items()
    elif content_type == FORM:
        try:
            pairs += _fields((await request.body()).decode("ascii"))
        except UnicodeDecodeError:
            raise RequestError(400, "Invalid request: the form is not URL-encoded") from None
    return Parameters(pairs)


def _fields(text: str) -> list[tuple[str, Any]]:
    """Return the names and values of a URL-encoded text."""
    try:
        fields = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except UnicodeDecodeError:
        raise RequestError(400, "Invalid request: a parameter is not UTF-8") from None
    except ValueError:
        raise RequestError(
            400, f"Invalid request: there are more than {MOST_FIELDS} parameters"
        ) from None
    return [*fields]


def _json_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object; an empty body has no parameters."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RequestError(400, "Invalid JSON format")
    return value
