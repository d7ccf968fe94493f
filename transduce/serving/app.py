"""The application: all routes, and the answers to requests that are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from transduce.errors import BundleError, TransduceError
from transduce.monitoring.software import version
from transduce.serving.apis import deepl, files, libretranslate, page, v1
from transduce.serving.apis.openapi import describe
from transduce.serving.guards.bodies import BodyLimits
from transduce.serving.observation import METRICS_TYPE, Metrics, Observation, Write
from transduce.serving.refusals import FAILED, Busy, Cancelled, RequestError, TooManyRequests
from transduce.serving.service import Service, service_of

SHOWN = 200  # characters of an address in a message


async def health(request: Request) -> Response:
    """Return whether the process works: 503 if a queue has died."""
    models = service_of(request).models
    # Another process may have to be asked, and this one goes on meanwhile.
    is_alive = await run_in_threadpool(models.are_alive)
    return JSONResponse({"status": "ok" if is_alive else "dead"}, 200 if is_alive else 503)


async def ready(request: Request) -> Response:
    """Return whether to send requests here: 503 as soon as the server is asked to stop."""
    is_draining = service_of(request).is_draining
    status = "stopping" if is_draining else "ready"
    return JSONResponse({"status": status}, 503 if is_draining else 200)


async def show_metrics(request: Request) -> Response:
    """Return the metrics in the text format of Prometheus."""
    metrics: Metrics = request.app.state.metrics
    text = await run_in_threadpool(metrics.text)
    return Response(text, headers={"content-type": METRICS_TYPE})


async def show_description(request: Request) -> Response:
    """Return the OpenAPI description."""
    return JSONResponse(request.app.state.description)


class Origins:
    """Middleware that allows web pages of other origins: all for the public APIs, few for /v1."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        options: dict[str, Any] = {
            "allow_methods": ["GET", "POST"],
            "allow_headers": ["Authorization", "Content-Type"],
        }
        self.for_all = CORSMiddleware(app, allow_origins=["*"], **options)
        allowed = service.settings.allowed_origins
        self.for_some = CORSMiddleware(app, allow_origins=allowed, **options) if allowed else app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application with the rule for this path."""
        is_own = scope["type"] != "http" or scope["path"].startswith("/v1/")
        await (self.for_some if is_own else self.for_all)(scope, receive, send)


class Slashes:
    """Middleware that ignores a slash at the end of a path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application with the path that its routes have."""
        if scope["type"] == "http" and len(scope["path"]) > 1:
            scope["path"] = scope["path"].removesuffix("/")
        await self.app(scope, receive, send)


def create_app(service: Service, write: Write | None = None) -> Starlette:
    """Return the application of a service, which writes its access log with `write`."""
    settings = service.settings
    metrics = Metrics(service.models)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    app = Starlette(
        routes=[
            *page.ROUTES,
            *v1.ROUTES,
            *libretranslate.ROUTES,
            *files.ROUTES,
            *deepl.ROUTES,
            Route("/health", health, methods=["GET"]),
            Route("/ready", ready, methods=["GET"]),
            Route("/metrics", show_metrics, methods=["GET"]),
            Route("/openapi.json", show_description, methods=["GET"]),
            Route("/spec", show_description, methods=["GET"]),
        ],
        middleware=[
            Middleware(Observation, metrics=metrics, write=write, log_text=settings.log_text),
            Middleware(Slashes),
            Middleware(BodyLimits, service=service),
            Middleware(Origins, service=service),
        ],
        lifespan=lifespan,
        exception_handlers={
            TransduceError: _refuse,
            HTTPException: _refuse,
            ClientDisconnect: _refuse,
            Exception: _fail,
        },
    )
    app.state.service = service
    app.state.metrics = metrics
    app.state.description = describe(service, version())
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer a request that cannot be fulfilled, in one line; pass on faults of the server."""
    if isinstance(error, BundleError):
        raise error
    headers: dict[str, str] = {}
    status = 400
    message = str(error)
    if isinstance(error, RequestError):
        status = error.status
    elif isinstance(error, Busy):
        status = 503
    elif isinstance(error, HTTPException):
        status = error.status_code
        message = _unknown(request, status) or str(error.detail)
        headers.update(error.headers or {})
    elif isinstance(error, ClientDisconnect | Cancelled):
        status = 499  # nobody reads it
        message = "the client has gone"
    if isinstance(error, Busy | TooManyRequests):
        headers["retry-after"] = str(error.retry_after)
    return _problem(request, message, status, headers)


def _unknown(request: Request, status: int) -> str | None:
    """Return what to say of an address or a method that the server does not have."""
    path = request.url.path[:SHOWN]
    if status == 404:
        return f"this server has nothing at {path}; GET /openapi.json describes what it has"
    if status == 405:
        return f"{path} does not accept {request.method}; GET /openapi.json describes what it does"
    return None


async def _fail(request: Request, error: Exception) -> Response:
    """Answer after a fault of the server; the details are in the log."""
    return _problem(request, FAILED, 500, {})


def _problem(request: Request, message: str, status: int, headers: dict[str, str]) -> Response:
    """Return a message under the name that the clients of an API expect."""
    is_deepl = request.url.path.startswith(("/v2/", "/v3/"))
    name = "message" if is_deepl else "error"
    return JSONResponse({name: message}, status, headers)
