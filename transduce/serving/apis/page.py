"""The browser page and its files, with a policy that lets it load nothing from elsewhere."""

from __future__ import annotations

import importlib.resources
from functools import cache

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from transduce.serving.refusals import RequestError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}


async def show_page(request: Request) -> Response:
    """Return the page."""
    return _answer("index.html")


async def show_file(request: Request) -> Response:
    """Return a file of the page."""
    return _answer(request.path_params["name"])


@cache
def _files() -> dict[str, bytes]:
    """Return all files of the page by name; they are few and small."""
    folder = importlib.resources.files("transduce").joinpath("page", "static")
    if not folder.is_dir():
        return {}
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _answer(name: str) -> Response:
    suffix = name[name.rfind(".") :]
    if name not in _files() or suffix not in TYPES:
        raise RequestError(404, f"the page has no file {name!r}")
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return Response(_files()[name], media_type=TYPES[suffix], headers=headers)


ROUTES = [
    Route("/", show_page, methods=["GET"]),
    Route("/static/{name}", show_file, methods=["GET"]),
]
