"""The application: all routes, and the answers to requests that are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transduce.errors import TransduceError
from transduce.serving import page_routes, v1
from transduce.serving.queue import Busy, Cancelled
from transduce.serving.service import RequestError, Service


async def health(request: Request) -> Response:
    """Return whether the process works: 503 if a queue has died."""
    models = request.app.state.service.models.served
    is_alive = all(model.queue.is_alive for model in models)
    return JSONResponse({"status": "ok" if is_alive else "dead"}, 200 if is_alive else 503)


async def ready(request: Request) -> Response:
    """Return whether to send requests here: 503 as soon as the server is asked to stop."""
    is_draining = request.app.state.service.is_draining
    status = "stopping" if is_draining else "ready"
    return JSONResponse({"status": status}, 503 if is_draining else 200)


def create_app(service: Service) -> Starlette:
    """Return the application of a service."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    app = Starlette(
        routes=[
            *page_routes.ROUTES,
            *v1.ROUTES,
            Route("/health", health, methods=["GET"]),
            Route("/ready", ready, methods=["GET"]),
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
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer a request that cannot be fulfilled, in one line."""
    headers: dict[str, str] = {}
    status = 400
    message = str(error)
    if isinstance(error, RequestError):
        status = error.status
    elif isinstance(error, Busy):
        status = 503
        headers["retry-after"] = str(error.retry_after)
    elif isinstance(error, HTTPException):
        status = error.status_code
        message = str(error.detail)
        headers.update(error.headers or {})
    elif isinstance(error, ClientDisconnect | Cancelled):
        status = 499  # nobody reads it
        message = "the client has gone"
    name = "message" if request.url.path.startswith("/v2/") else "error"
    return JSONResponse({name: message}, status, headers)


async def _fail(request: Request, error: Exception) -> Response:
    """Answer after a bug of ours; the details are in the log."""
    return JSONResponse({"error": "the server failed; its log has the reason"}, 500)
