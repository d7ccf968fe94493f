"""Limits on the body of a request: its size, and the time until it is complete."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.security import RequestError
from transduce.serving.service import Service


class BodyLimits:
    """Middleware that refuses bodies which are too large or arrive too slowly."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application with a body that is watched."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(scope, receive, self.service)

        async def send_and_close(message: Message) -> None:
            # What is left of a body is not waited for. A stopping server takes no more requests.
            is_start = message["type"] == "http.response.start"
            if is_start and (not body.is_complete or self.service.is_draining):
                message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        await self.app(scope, body.receive, send_and_close)


class _Body:
    """The body of one request while it arrives."""

    def __init__(self, scope: Scope, receive: Receive, service: Service) -> None:
        self._receive = receive
        self._settings = service.settings
        self._deadline = time.monotonic() + self._settings.body_seconds
        self._size = 0
        headers = dict(scope["headers"])
        self._announced = int(headers.get(b"content-length", b"0"))
        self.is_complete = not self._announced and b"transfer-encoding" not in headers

    async def receive(self) -> Message:
        """Return the next part of the body, or that the client has gone."""
        if self._announced > self._settings.max_body:
            self._refuse_size()
        if self.is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise RequestError(
                408, f"the body was not complete after {self._settings.body_seconds:g} seconds"
            ) from None
        self._size += len(message.get("body", b""))
        if self._size > self._settings.max_body:
            self._refuse_size()
        self.is_complete = not message.get("more_body", False)
        return message

    def _refuse_size(self) -> None:
        raise RequestError(
            413, f"the body is too large; at most {self._settings.max_body:,} bytes are allowed"
        )
