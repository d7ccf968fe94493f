"""Connections with limits: a cap on their number, and deadlines for headers and for reading."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from transduce.serving.settings import ServerSettings

LEAST_READ = 65_536  # bytes that a client reads in `send_seconds`, or all that are left
REST_SECONDS = 1.0  # of a stop, in which connections without a request may still send one


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, for clients that may be slow or hostile."""

    settings: ServerSettings  # `limited_protocol` sets it

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._headers_timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless there are too many."""
        super().connection_made(transport)
        # The clock runs as soon as any byte waits for the client, also in an answer that ends.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > self.settings.max_connections:
            self._refuse(503, "the server has too many connections; try again later")
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines of a connection."""
        self._stop_headers_timer()
        self._stop_reading_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived. The clock runs from a request's first byte to its last header."""
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            self._expect_headers()
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # The body became malformed when the answer was on its way.
            self.transport.abort()
        if self.conn.their_state is not h11.IDLE:
            self._stop_headers_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
        else:
            self._refuse(400, "the request is not valid HTTP/1.1")

    def pause_writing(self) -> None:
        """Wait for a client that reads too slowly, but not for ever."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Go on, because the client has read enough."""
        self._stop_reading_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """Close the connection after its answer; without a request, one may be on its way."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and not self.transport.is_closing():
            self.loop.call_later(REST_SECONDS, self._close_unused)
        else:
            super().shutdown()

    def _close_unused(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def _expect_headers(self) -> None:
        if self._headers_timer is None:
            self._headers_timer = self.loop.call_later(
                self.settings.header_seconds, self._refuse_slow_headers
            )

    def _expect_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading_timer = self.loop.call_later(
            self.settings.send_seconds, self._check_reading, unread
        )

    def _check_reading(self, unread: int) -> None:
        """Cut a client that has read less than it must of what was unread before."""
        if self.transport.get_write_buffer_size() > unread - LEAST_READ:
            self.transport.abort()
        else:
            self._expect_reading()

    def _refuse_slow_headers(self) -> None:
        self._refuse(408, f"no request arrived within {self.settings.header_seconds:g} seconds")

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application, and close the connection."""
        self._stop_headers_timer()
        if self.transport.is_closing():
            return
        body = json.dumps({"error": message}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n"
            f"{'retry-after: 1' if status == 503 else 'cache-control: no-store'}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _stop_headers_timer(self) -> None:
        if self._headers_timer:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _stop_reading_timer(self) -> None:
        if self._reading_timer:
            self._reading_timer.cancel()
            self._reading_timer = None


def limited_protocol(settings: ServerSettings) -> type[LimitedProtocol]:
    """Return the protocol with these limits, as a class that uvicorn can make connections of."""
    return type("Limited", (LimitedProtocol,), {"settings": settings})
