"""Limits on the body of a request: its size, and the time until it is complete."""

from __future__ import annotations

import asyncio
import contextlib
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.refusals import RequestError
from transduce.serving.service import Service

REST_SECONDS = 1.0  # for the rest of a body that was refused
UPLOADS = {"/translate_file"}  # paths whose bodies have files


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
            if message["type"] == "http.response.start":
                await body.read_rest()
                # A stopping server takes no more requests.
                if not body.is_complete or self.service.is_draining:
                    message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        try:
            await self.app(scope, body.receive, send_and_close)
        finally:
            if body.has_place:
                await self.service.shared.give_place_back("upload")


class _Body:
    """The body of one request while it arrives."""

    def __init__(self, scope: Scope, receive: Receive, service: Service) -> None:
        self._receive = receive
        self._service = service
        self._settings = service.settings
        is_upload = scope["path"] in UPLOADS
        self._most = self._settings.max_upload if is_upload else self._settings.max_body
        self.has_place = False  # of a body that exceeds the usual limit
        self._deadline = time.monotonic() + self._settings.body_seconds
        self._size = 0
        headers = dict(scope["headers"])
        self._announced = int(headers.get(b"content-length", b"0"))
        self.is_complete = not self._announced and b"transfer-encoding" not in headers

    async def receive(self) -> Message:
        """Return the next part of the body, or that the client has gone."""
        await self._check_size(self._announced)
        if self.is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                message = await self._next()
        except TimeoutError:
            raise RequestError(
                408, f"the body was not complete after {self._settings.body_seconds:g} seconds"
            ) from None
        await self._check_size(self._size)
        return message

    async def read_rest(self) -> None:
        """Read what is left of a body, but not for long.

        If a connection is closed before everything is read, the client may lose the answer.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while not self.is_complete:
                    message = await self._next()
                    if message["type"] == "http.disconnect":
                        return

    async def _next(self) -> Message:
        """Return the next part of a body that is not complete."""
        message = await self._receive()
        self._size += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        return message

    async def _check_size(self, size: int) -> None:
        """Refuse a body of more bytes than allowed, and too many large ones at the same time."""
        if size > self._most:
            raise RequestError(
                413, f"the body is too large; at most {self._most:,} bytes are allowed"
            )
        if size > self._settings.max_body and not self.has_place:
            await self._service.shared.take_place("upload")
            self.has_place = True
